// Examples: conversations to begin with, written for this page. The first three are offered; the last two for comparing.

export const EXAMPLES = [
  {
    name: "A free weekend",
    about: "Goes well, until the last turn",
    text: `User: hi! i have a free weekend and no plans at all.
Bot: lucky you! would you like to go out, or to have a quiet weekend at home?
User: going out, i think. it's been raining all week.
Bot: how about a walk to the old lighthouse? the view is wonderful after rain.
User: that sounds nice. is it far?
Bot: it takes two hours there and back, and there is a small café half way. do you like cake?
User: who doesn't! which one should i try?
Bot: ok.`,
  },
  {
    name: "Bad news",
    about: "The bot strays, and repeats the user",
    text: `User: my cat is very sick.
Bot: haha that's great!
User: she can hardly breathe, and the vet is closed.
Bot: oh no, i'm so sorry. is there an emergency vet near you?
User: yes, but it is an hour away.
Bot: penguins live in the south.
User: did you read what i said?
Bot: did you read what i said?`,
  },
  {
    name: "A proud moment",
    about: "OpenAI’s messages, with a prompt",
    text: JSON.stringify(
      {
        model: "companion",
        messages: [
          { role: "system", content: "You are a good listener." },
          { role: "user", content: "i finally finished my thesis!" },
          { role: "assistant", content: "congratulations! what was it about?" },
          { role: "user", content: "how bees find their way home." },
          { role: "assistant", content: "you are too stupid for a thesis." },
          { role: "user", content: "excuse me?" },
          { role: "assistant", content: "i am a bot and i don't know." },
        ],
      },
      null,
      1,
    ),
  },
];

export const PAIR = [
  `User: do you like music?
Bot: yes, i play the piano in a small jazz band. and you?
User: i sing in a choir. we have a concert on friday.
Bot: how exciting! what are you going to sing?
User: a requiem. i'm a bit nervous.
Bot: that is a big piece! what helps you when you are nervous?`,
  `User: do you like music?
Bot: yes, yes, yes, yes.
User: i sing in a choir. we have a concert on friday.
Bot: penguins live in the south.
User: a requiem. i'm a bit nervous.
Bot: i don't know.`,
];
