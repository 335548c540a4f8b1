/** The bodies of `POST /v1/pipe`, and their answers. */

/** Frames to the server: the first ones open a pipe. */
export interface PipeSend {
  pipe?: string | undefined;
  /** Counts the sends of a pipe from 1. */
  n?: number | undefined;
  frames?: unknown[] | undefined;
  /** As a WebSocket's close with this code. */
  close?: number | undefined;
}

/** Waits for frames from the server. */
export interface PipeReceive {
  pipe: string;
  /** The number of the last answer that came. */
  after: number;
  wait_ms: number;
}

/** What a pipe's requests are answered with. */
export interface PipeAnswer {
  pipe?: string;
  n?: number;
  frames?: unknown[];
  close?: { code: number; reason: string };
}
