// Calls a service through the JavaScript client: `node javascript_caller.mjs CLIENT URL` takes an order as a line of JSON, and answers
// {id, reply}, or {id, error} with the error's code, in whatever order they come.
import { createInterface } from "node:readline";

const { TurnScoreClient } = await import(process.argv[2]);
const REOPENINGS = 3;

/** Says the turns; where a connection breaks or drains, goes on in another conversation as the client's README says. */
async function talk(client, { turns, scorers }) {
  let conversation = await client.conversation({ scorers });
  const replies = [];
  for (const { speaker, text } of turns) {
    for (let left = REOPENINGS; ; left -= 1) {
      try {
        if (conversation.isDraining || conversation.isClosed) {
          const next = await client.conversation({ scorers, context: conversation.turns });
          conversation.close();
          conversation = next;
        }
        const reply = await conversation.say(speaker, text);
        if (speaker === "system") replies.push(reply);
        break;
      } catch (error) {
        if (!left || !error.isRetryable) throw error;
      }
    }
  }
  conversation.close();
  return { turns: replies };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, key, call, body } = JSON.parse(line);
  const client = new TurnScoreClient(process.argv[3], { apiKey: key, timeoutMs: 20_000 });
  const work = call === "talk" ? talk(client, body) : client[call](body);
  work.then(
    (reply) => console.log(JSON.stringify({ id, reply })),
    (error) => console.log(JSON.stringify({ id, error: error.code ?? "", what: String(error) })),
  );
}
