// The wire's types and tables as TypeScript, from docs/asyncapi.json and docs/openapi.json.
//
//     node scripts/wire.mjs            writes src/wire/frames.ts, tables.ts and queues.ts anew
//
// A test fails when those files are not what this would write. Frames keep the names of the wire;
// what `client.queues` takes and gives has names in camel case, as everything else of the SDK.
import { readFileSync, writeFileSync } from "node:fs";

const DOCS = new URL("../../docs/", import.meta.url);
const SOURCE = new URL("../src/wire/", import.meta.url);
const TOP = "// Made by scripts/wire.mjs from the wire's schema: change it there.\n";

const read = (name) => JSON.parse(readFileSync(new URL(name, DOCS), "utf8"));
const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const refName = (ref) => ref.split("/").at(-1);

/** The TypeScript type of a JSON schema. */
function typeOf(schema, rename) {
  if (schema.$ref) return refName(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map((one) => typeOf(one, rename)).join(" | ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  switch (schema.type) {
    case "integer":
    case "number":
      return "number";
    case "string":
    case "boolean":
    case "null":
      return schema.type;
    case "array": {
      const item = typeOf(schema.items ?? {}, rename);
      return item.includes("|") ? `(${item})[]` : `${item}[]`;
    }
    case "object": {
      const value = schema.additionalProperties;
      return `Record<string, ${value ? typeOf(value, rename) : "unknown"}>`;
    }
    default:
      return "unknown";
  }
}

function interfaceOf(name, schema, { rename = (key) => key, partial = false } = {}) {
  const required = new Set(partial ? [] : schema.required);
  const lines = Object.entries(schema.properties ?? {}).map(([key, value]) => {
    const mark = required.has(key) ? "" : "?";
    return `  ${rename(key)}${mark}: ${typeOf(value, rename)};\n`;
  });
  const what = (schema.description ?? "").split("\n\n")[0].replaceAll("\n", " ");
  return `${what && `/** ${what} */\n`}export interface ${name} {\n${lines.join("")}}\n`;
}

const ops = (document, action) =>
  Object.values(document.operations)
    .filter((operation) => operation.action === action)
    .map((operation) => refName(operation.messages[0].$ref));

/** src/wire/frames.ts: every frame and what is in it. */
export function frames() {
  const document = read("asyncapi.json");
  const { schemas, messages } = document.components;
  const union = (name, action) => {
    const names = ops(document, action).map((op) => refName(messages[op].payload.$ref));
    return (
      `export type ${name} =\n${names.map((one) => `  | ${one}\n`).join("")}`.trimEnd() + ";\n"
    );
  };
  const parts = Object.entries(schemas).map(([name, schema]) => interfaceOf(name, schema));
  parts.push(union("ClientFrame", "receive"), union("ServerFrame", "send"));
  return `${TOP}\n${parts.join("\n")}`;
}

/** What a field must be at least for the client to read the frame: the letter that its type begins
 * with, as `typeof` names it, or `a` for an array. */
function kindOf(schema) {
  return schema.type === "integer" ? "n" : schema.type[0];
}

/** Limits that only servers look at. */
const NOT_OURS = [
  "priority_default",
  "subs",
  "wait_ms",
  "token_bytes",
  "name",
  "hello_ms",
  "resume_ms",
];

/** src/wire/tables.ts: limits, errors, close codes, and what a server's frames must have. */
export function tables() {
  const document = read("asyncapi.json");
  const { limits: all, errors, closes } = document["x-pushlane"];
  const ours = Object.entries(all).filter(([name]) => !NOT_OURS.includes(name));
  const limits = Object.fromEntries(ours);
  const { schemas, messages } = document.components;
  const line = ([key, value]) => `  ${/^\w+$/.test(key) ? key : JSON.stringify(key)}: ${value},\n`;
  const table = (entries) => `{\n${entries.map(line).join("")}}`;
  const rows = (object, row) => Object.entries(object).map(([key, v]) => [key, row(v)]);
  const list = (...values) => `[${values.map((value) => JSON.stringify(value)).join(", ")}]`;
  const needed = ops(document, "send").map((op) => {
    const schema = schemas[refName(messages[op].payload.$ref)];
    const fields = schema.required.filter((name) => name !== "op");
    const kinds = fields.map((name) => `${name}: "${kindOf(schema.properties[name])}"`);
    return [op, `{ ${kinds.join(", ")} }`];
  });
  return `${TOP}
/** A limit: its default, and the least and the most that a server may set. */
export type LimitRow = readonly [standard: number, least: number, most: number];

export const LIMITS = ${table(rows(limits, (one) => list(one.default, one.minimum, one.maximum)))} as const;

/** A server's limits, under their names on the wire. */
export type Limits = { [name in keyof typeof LIMITS]: number };

/** An error code: its HTTP status, the close code if it always ends the session, and whether
 * repeating the request can succeed. */
export type ErrorRow = readonly [status: number, close: number | null, retry: boolean];

export const ERRORS: Record<string, ErrorRow> = ${table(
    rows(errors, (one) => list(one.http_status, one.close_code, one.retry)),
  )};

/** A close code: what its reason says, and whether a client connects again on its own. */
export type CloseRow = readonly [reason: string, reconnect: boolean];

export const CLOSES: Record<number, CloseRow> = ${table(
    rows(closes, (one) => list(one.reason, one.reconnect)),
  )};

/** What each frame of a server must have, by op: the first letters of types, \`a\` for an array. */
export const NEEDED: Record<string, Record<string, string>> = ${table(needed)};
`;
}

/** What `client.queues` asks, and the names of what goes in and comes out. */
const QUEUE_CALLS = [
  ["put", "/v1/queues/{queue}", "QueueObject", "QueueBody"],
  ["patch", "/v1/queues/{queue}", "QueueObject", "QueueChanges"],
  ["get", "/v1/queues", "QueuePage"],
  ["get", "/v1/queues/{queue}/stats", "Stats"],
  ["get", "/v1/queues/{queue}/peek", "PeekAnswer"],
  ["post", "/v1/queues/{queue}/redrive", "RedriveAnswer", "RedriveBody"],
  ["get", "/v1/queues/{queue}/messages/{id}/explain", "Explanation"],
];

/** src/wire/queues.ts: what `client.queues` takes and gives. */
export function queues() {
  const document = read("openapi.json");
  const { schemas } = document.components;
  const found = new Set();
  const aliases = [];
  const find = (name) => {
    if (found.has(name)) return;
    found.add(name);
    const text = JSON.stringify(schemas[name]);
    for (const [, ref] of text.matchAll(/"#\/components\/schemas\/(\w+)"/g)) find(ref);
  };
  const use = (content, name) => {
    const real = refName(content["application/json"].schema.$ref);
    find(real);
    if (real !== name) aliases.push(`export type ${name} = ${real};\n`);
  };
  for (const [method, path, answer, body] of QUEUE_CALLS) {
    const operation = document.paths[path][method];
    use(operation.responses["200"].content, answer);
    if (body) use(operation.requestBody.content, body);
  }
  const parts = [...found]
    .sort()
    .map((name) => interfaceOf(name, schemas[name], { rename: camel }));
  return `${TOP}\n${[...parts, ...aliases].join("\n")}`;
}

export const FILES = { "frames.ts": frames, "tables.ts": tables, "queues.ts": queues };

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const { format } = await import("prettier");
  for (const [name, render] of Object.entries(FILES)) {
    const text = await format(render(), { parser: "typescript", printWidth: 100, tabWidth: 2 });
    writeFileSync(new URL(name, SOURCE), text);
  }
}
