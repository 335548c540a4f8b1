// CPU time and memory, read where they are kept: of a process and its descendants from /proc.

import { readFileSync, readdirSync } from "node:fs";

const TICK_S = 1 / 100; // USER_HZ is 100 on every Linux that Node runs on

export function ownSeconds() {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
}

// User and system time of a process, its descendants, and those of them that have ended.
export function seconds(pid) {
  let sum = 0;
  for (const ticks of family(pid).values()) sum += ticks;
  return sum * TICK_S;
}

// Memory: pages that processes share are counted once.
export function kib(pid) {
  let sum = 0;
  for (const each of family(pid).keys()) {
    const text = readFileSync(`/proc/${each}/smaps_rollup`, "latin1");
    sum += +/^Pss:\s+(\d+) kB/m.exec(text)[1];
  }
  return sum;
}

// A process and its descendants, with the ticks of CPU time that each used.
function family(pid) {
  const parents = new Map();
  for (const name of readdirSync("/proc")) {
    if (/^\d+$/.test(name)) {
      const fields = stat(name);
      if (fields) parents.set(+name, { parent: +fields[1], ticks: ticks(fields) });
    }
  }
  const found = new Map();
  for (const [other, { ticks }] of parents) {
    if (descends(other, pid, parents)) found.set(other, ticks);
  }
  return found;
}

// The fields of /proc/PID/stat from the third on: the second, a name, may hold spaces.
function stat(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1");
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  } catch {
    return null; // it ended meanwhile
  }
}

// Its own user and system time, and that of its children that have ended.
function ticks(fields) {
  return +fields[11] + +fields[12] + +fields[13] + +fields[14];
}

function descends(pid, from, parents) {
  for (let at = pid; at; at = parents.get(at)?.parent) if (at === from) return true;
  return false;
}
