// node load.mjs SPEC: one measurement of one system. SPEC is JSON: {system, measure, …}. Prints its
// result as one line of JSON. Any fault ends it with a message and exit code 1.

import { backlog } from "./measures/backlog.mjs";
import { fairness } from "./measures/fairness.mjs";
import { idle } from "./measures/idle.mjs";
import { latency } from "./measures/latency.mjs";
import { stuck } from "./measures/stuck.mjs";
import { throughput } from "./measures/throughput.mjs";

const MEASURES = { backlog, fairness, idle, latency, stuck, throughput };

process.on("unhandledRejection", fail);
process.on("uncaughtException", fail);

function fail(error) {
  console.error(error?.stack ?? String(error));
  process.exit(1);
}

const spec = JSON.parse(process.argv[2]);
const { connect } = await import(`./adapters/${spec.adapter}.mjs`);
const result = await MEASURES[spec.measure](await connect(spec), spec);
console.log(JSON.stringify(result));
process.exit(0); // what is still open, idle consumers above all, needs no farewell
