// Made by scripts/wire.mjs from the wire's schema: change it there.

/** Messages are done. */
export interface Ack {
  op: "ack";
  sub: number;
  receipts: string[];
  id?: number | null;
}

/** A sign of life. */
export interface Beat {
  op: "beat";
  now: number;
}

/** How many unsettled messages the subscription may hold from now on; 0 pauses it. */
export interface Credit {
  op: "credit";
  sub: number;
  credit: number;
}

/** Why a message became a dead letter, and where it came from. */
export interface DeadInfo {
  cause: string;
  queue: string;
  id: string;
  attempts: number;
  dead_at: number;
  error?: string | null;
}

/** Messages for a subscription; `dropped` counts what a slow ephemeral one missed before. */
export interface Deliver {
  op: "deliver";
  sub: number;
  messages: DeliverMessage[];
  dropped?: number;
}

/** A message on its way out. Without receipt, fence and lease_ms where ack is "none". */
export interface DeliverMessage {
  id: string;
  attempt: number;
  published_at: number;
  body?: unknown;
  data?: string | null;
  receipt?: string | null;
  fence?: number | null;
  lease_ms?: number | null;
  key?: string | null;
  headers?: Record<string, string> | null;
  dead?: DeadInfo | null;
}

/** The answer to start, ack, nack, extend and unsubscribe: what is not listed succeeded. */
export interface Done {
  op: "done";
  id: number;
  lease_lost?: string[];
  duplicate?: string[];
}

/** The subscription is over: queue deleted, right withdrawn. */
export interface Ended {
  op: "ended";
  sub: number;
  code: string;
  message: string;
}

/** The answer to a request that failed, or to a bad frame. */
export interface ErrorFrame {
  op: "error";
  code: string;
  message: string;
  retry_ms?: number | null;
  id?: number | null;
  request?: string | null;
  sub?: number | null;
}

/** Leases end `lease_ms` from now. */
export interface Extend {
  op: "extend";
  sub: number;
  receipts: string[];
  lease_ms: number;
  id?: number | null;
}

/** One message of a batch that was not stored. */
export interface Failed {
  index: number;
  code: string;
  message: string;
  retry_ms?: number | null;
}

/** The server will close soon: `drain`, `slow_consumer`, `token_expired` or `overload`. */
export interface Goaway {
  op: "goaway";
  reason: string;
  reconnect_ms: number;
}

/** The first frame of a session. */
export interface Hello {
  op: "hello";
  token?: string | null;
  client?: string | null;
  producer?: string | null;
  resume?: Resume | null;
}

/** These receipts are no longer valid: stop work on their messages. */
export interface LeaseLostFrame {
  op: "lease_lost";
  sub: number;
  receipts: string[];
}

/** Messages failed (or, with `dead`, never will succeed). */
export interface Nack {
  op: "nack";
  sub: number;
  receipts: string[];
  delay_ms?: number | null;
  error?: string | null;
  dead?: boolean;
  id?: number | null;
}

/** Store messages; answered by `published`. */
export interface Publish {
  op: "publish";
  id: number;
  to: string;
  messages: PublishMessage[];
}

/** A message on its way in: exactly one of body and data. */
export interface PublishMessage {
  body?: unknown;
  data?: string | null;
  key?: string | null;
  dedup?: string | null;
  priority?: number | null;
  delay_ms?: number | null;
  ttl_ms?: number | null;
  headers?: Record<string, string> | null;
  seq?: number | null;
  event_at?: number | null;
}

/** The answer to publish: an id for each message, null for those in `failed`. */
export interface Published {
  op: "published";
  id: number;
  ids: (string | null)[];
  duplicates?: number[];
  failed?: Failed[];
}

/** The session to take up again, and all receipts the client still has of it. */
export interface Resume {
  session: string;
  held?: Record<string, string[]>;
}

/** Work on reserved messages begins: now the lease runs and the attempt counts. */
export interface Start {
  op: "start";
  sub: number;
  receipts: string[];
  id?: number | null;
}

/** Ask for messages; answered by `subscribed`, then `deliver` as credit allows. */
export interface Subscribe {
  op: "subscribe";
  id: number;
  from: string;
  credit: number;
  ack?: "explicit" | "none";
  start?: "delivery" | "explicit";
  lease_ms?: number | null;
}

/** The answer to subscribe; comes before the first `deliver`. */
export interface Subscribed {
  op: "subscribed";
  id: number;
  sub: number;
}

/** No more deliveries; what is leased stays leased. */
export interface Unsubscribe {
  op: "unsubscribe";
  id: number;
  sub: number;
}

/** The answer to hello. */
export interface Welcome {
  op: "welcome";
  session: string;
  node: string;
  server: string;
  resumed: boolean;
  now: number;
  resume_ms: number;
  heartbeat_ms: number;
  limits: Record<string, number>;
  lost?: Record<string, string[]>;
}

export type ClientFrame =
  Hello | Publish | Subscribe | Start | Ack | Nack | Extend | Credit | Unsubscribe;

export type ServerFrame =
  | Welcome
  | Published
  | Subscribed
  | Done
  | Deliver
  | LeaseLostFrame
  | Ended
  | Beat
  | Goaway
  | ErrorFrame;
