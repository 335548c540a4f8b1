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

/** The limits that a client looks at: all others are the server's to check. */
const OURS = [
  "frame_bytes",
  "batch",
  "settle",
  "credit",
  "unanswered",
  "inflight_bytes",
  "wait_ms",
  "error_bytes",
];
/** From this HTTP status on an error may go away by itself; below, the request is to blame. */
const RETRY = 429;
const NORMAL = "1000";

/** src/wire/tables.ts: limits, errors and close codes, as far as a client has to know them. */
export function tables() {
  const { limits, errors, closes } = read("asyncapi.json")["x-pushlane"];
  for (const [code, { http_status, retry }] of Object.entries(errors)) {
    if (retry !== http_status >= RETRY) throw new Error(`${code}: ${http_status} tells no retry`);
  }
  const table = (entries) =>
    `{\n${entries.map(([key, value]) => `  ${key}: ${JSON.stringify(value)},\n`).join("")}}`;
  const final = Object.entries(closes).filter(([code, row]) => !row.reconnect && code !== NORMAL);
  return `${TOP}
/** A server's limits and their defaults, under their names on the wire. */
export const LIMITS = ${table(OURS.map((name) => [name, limits[name].default]))};

export const MAX_RUN = ${limits.run.default};

/** The HTTP status of each error code. */
export const STATUS: Record<string, number> = ${table(
    Object.entries(errors).map(([code, { http_status }]) => [code, http_status]),
  )};

/** From this status on, repeating the same request can succeed. */
export const RETRY = ${RETRY};

/** The close codes after which a client doesn't come back on its own, and what they stand for. */
export const CLOSES: Record<number, string> = ${table(
    final.map(([code, { reason }]) => [code, reason]),
  )};
`;
}

/** What `client.queues` asks, and the names of what goes in and comes out. */
const QUEUE_CALLS = [
  ["put", "/v1/queues/{queue}", "QueueObject", "QueueBody"],
  ["patch", "/v1/queues/{queue}", "QueueObject", "QueueChanges"],
  ["get", "/v1/queues", "QueuePage"],
  ["get", "/v1/queues/{queue}/stats", "Stats"],
  ["get", "/v1/queues/{queue}/peek", "PeekAnswer"],
  ["post", "/v1/queues/{queue}/purge", "PurgeAnswer"],
  ["post", "/v1/queues", "QueueObject", "NewQueue"],
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
