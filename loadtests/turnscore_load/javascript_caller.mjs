// Calls a service through the JavaScript client: `node javascript_caller.mjs CLIENT URL` takes an order as a line of JSON, and answers
// {id, reply}, or {id, error} with the code of a TurnScoreError, "" of any other error, in whatever order they come.
import { createInterface } from "node:readline";

const { TurnScoreClient, TurnScoreError } = await import(process.argv[2]);

/** What each turn is answered, up to the first with an error. The client itself goes on where a connection breaks or drains. */
async function talk(client, { turns, scorers }) {
  const conversation = await client.conversation({ scorers });
  const replies = [];
  try {
    for (const { speaker, text } of turns) {
      const reply = await conversation.say(speaker, text);
      replies.push(reply);
      if (Object.keys(reply?.errors ?? {}).length) break;
    }
  } finally {
    conversation.close();
  }
  return replies;
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, key, call, body } = JSON.parse(line);
  const client = new TurnScoreClient(process.argv[3], { apiKey: key, timeoutMs: 20_000 });
  const work = call === "talk" ? talk(client, body) : client[call](body);
  work.then(
    (reply) => console.log(JSON.stringify({ id, reply })),
    (error) => console.log(JSON.stringify({ id, error: error instanceof TurnScoreError ? error.code : "", what: String(error) })),
  );
}
