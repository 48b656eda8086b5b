import { webcrypto } from "node:crypto";

globalThis.crypto ??= webcrypto; // what the clients are built on wants Node.js 20, where it is a global; nothing else keeps them from 18

// Runs the cases that the test names in CASES (JSON: name -> what the case needs), all at once, and prints for each a line with how
// it came out and what it returned: what a program sees of an error is its status, its code and its message.
export async function run(cases) {
  const given = Object.entries(JSON.parse(process.env.CASES));
  await Promise.all(given.map(async ([name, c]) => {
    const line = { name };
    try {
      line.result = await cases[name](c);
    } catch (e) {
      line.error = { status: Number(e.statusCode ?? e.status ?? 0), code: e.code ?? "", message: e.message };
    }
    console.log(JSON.stringify(line));
  }));
}
