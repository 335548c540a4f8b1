/**
 * Requests that wait for their answer, by id.
 *
 * Ids are counted up over all connections of a client, so an answer can't be taken for that of
 * another request.
 */

import type { Outbox } from "./outbox.js";
import type { Publication } from "./publication.js";
import type { Settle } from "./settle.js";
import type { Subscription } from "./subscription.js";
import { Table } from "./table.js";

export interface PublishRequest {
  kind: "publish";
  outbox: Outbox;
  publications: Publication[];
  cost: number;
}

export interface SettleRequest {
  kind: "settle";
  settle: Settle;
  sentAt: number;
}

export interface SubscribeRequest {
  kind: "subscribe";
  subscription: Subscription;
}

export interface UnsubscribeRequest {
  kind: "unsubscribe";
  /** null: one that the server has and we don't know. */
  subscription: Subscription | null;
}

export type Request = PublishRequest | SettleRequest | SubscribeRequest | UnsubscribeRequest;

/** The unanswered requests of one connection. */
export class Requests {
  private _last = 0;
  private _open = new Table<Request>();

  get size(): number {
    return this._open.size;
  }

  /** The id under which it goes out. */
  add(request: Request): number {
    this._open.add(++this._last, request);
    return this._last;
  }

  /** What this answers; undefined for an answer nobody waits for. */
  pop(id: number | null | undefined): Request | undefined {
    const request = this._open.get(id ?? 0);
    if (request) this._open.delete(id!);
    return request;
  }

  /** The connection is gone: what it leaves unanswered, oldest first. */
  clear(): Request[] {
    const left = this._open.values();
    this._open.clear();
    return left;
  }
}
