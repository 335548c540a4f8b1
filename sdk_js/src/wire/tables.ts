// Made by scripts/wire.mjs from the wire's schema: change it there.

/** A limit: its default, and the least and the most that a server may set. */
export type LimitRow = readonly [standard: number, least: number, most: number];

export const LIMITS = {
  frame_bytes: [4194304, 65536, 67108864],
  message_bytes: [1048576, 1024, 33554432],
  header_bytes: [8192, 0, 65536],
  body_depth: [500, 500, 500],
  key_bytes: [512, 16, 4096],
  dedup_bytes: [256, 16, 4096],
  delay_ms_max: [31536000000, 0, 315360000000],
  ttl_ms_max: [31536000000, 1, 315360000000],
  priority_max: [9, 9, 9],
  batch: [1000, 1, 10000],
  settle: [10000, 1, 100000],
  credit: [10000, 1, 100000],
  unanswered: [1024, 1, 65536],
  inflight_bytes: [16777216, 65536, 1073741824],
  lease_ms_min: [1000, 1, 3600000],
  lease_ms_max: [43200000, 1000, 604800000],
  error_bytes: [1024, 0, 65536],
  run: [10000, 10000, 10000],
  id: [128, 128, 128],
  heartbeat_ms: [25000, 100, 600000],
} as const;

/** A server's limits, under their names on the wire. */
export type Limits = { [name in keyof typeof LIMITS]: number };

/** An error code: its HTTP status, the close code if it always ends the session, and whether
 * repeating the request can succeed. */
export type ErrorRow = readonly [status: number, close: number | null, retry: boolean];

export const ERRORS: Record<string, ErrorRow> = {
  bad_request: [400, null, false],
  unauthorized: [401, 1008, false],
  forbidden: [403, null, false],
  not_found: [404, null, false],
  too_large: [413, null, false],
  throttled: [429, null, true],
  queue_full: [507, null, true],
  lease_lost: [409, null, false],
  conflict: [409, null, false],
  unavailable: [503, null, true],
  internal: [500, null, true],
};

/** A close code: what its reason says, and whether a client connects again on its own. */
export type CloseRow = readonly [reason: string, reconnect: boolean];

export const CLOSES: Record<number, CloseRow> = {
  1000: ["", false],
  1001: ["drain", true],
  1002: ["bad_request", false],
  1003: ["bad_request", false],
  1007: ["bad_request", false],
  1008: ["unauthorized", false],
  1009: ["too_large", false],
  1011: ["internal", true],
  1013: ["overload", true],
  4001: ["taken_over", false],
  4002: ["slow_consumer", true],
};

/** What each frame of a server must have, by op: the first letters of types, `a` for an array. */
export const NEEDED: Record<string, Record<string, string>> = {
  welcome: {
    session: "s",
    node: "s",
    server: "s",
    resumed: "b",
    now: "n",
    resume_ms: "n",
    heartbeat_ms: "n",
    limits: "o",
  },
  published: { id: "n", ids: "a" },
  subscribed: { id: "n", sub: "n" },
  done: { id: "n" },
  deliver: { sub: "n", messages: "a" },
  lease_lost: { sub: "n", receipts: "a" },
  ended: { sub: "n", code: "s", message: "s" },
  beat: { now: "n" },
  goaway: { reason: "s", reconnect_ms: "n" },
  error: { code: "s", message: "s" },
};
