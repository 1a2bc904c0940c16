// Snippets: the same request as a command, as a program and as files. Pure.

/** The request as a shell command; the key stays a variable. */
export function asCurl(url, request, hasKey) {
  const quoted = `'${JSON.stringify(request).replaceAll("'", "'\\''")}'`;
  const key = hasKey ? ' \\\n  -H "authorization: Bearer $TURNSCORE_API_KEY"' : "";
  return `curl -s ${url}v1/score_dialogue -H 'content-type: application/json'${key} \\\n  -d ${quoted}\n`;
}

/** The request as a program with the Python client, which reads TURNSCORE_API_KEY by itself. */
export function asPython(url, { turns, scorers }) {
  const lines = turns.map((turn) => `    (${JSON.stringify(turn.speaker)}, ${JSON.stringify(turn.text)}),`);
  return `from turnscore_client import TurnScoreClient

turns = [
${lines.join("\n")}
]
with TurnScoreClient(${JSON.stringify(url.replace(/\/$/, ""))}) as client:
    reply = client.score_dialogue(turns, scorers=[${scorers.map((name) => JSON.stringify(name)).join(", ")}])
for turn in reply.turns:
    for score in [*turn.scores.values()][:1]:
        print(turn.index, score.percentile, score.label, *score.signals)
`;
}

/** Every turn in a row, for spreadsheets: a text that one would compute stands behind an apostrophe. */
export function asCsv(judged) {
  const head = [
    "turn",
    "speaker",
    "text",
    ...judged.scorers.flatMap((name) => [name, `${name}_percentile`, `${name}_label`]),
  ];
  const rows = judged.turns.map((turn, index) => {
    const scores = judged.scorers.map((name) => judged.scoreOf(index, name));
    return [
      index,
      turn.speaker,
      harmless(turn.text),
      ...scores.flatMap((score) => [score?.value, score?.percentile, score?.label]),
    ];
  });
  return [head, ...rows].map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** The request and the reply, as they travelled. */
export function asJson(judged) {
  return `${JSON.stringify({ request: judged.request, reply: judged.reply }, null, 1)}\n`;
}

function harmless(text) {
  return /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
}

function cell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
