/** The small process behind the page: it knows where the servers are, and can kill one. */

export interface Node {
  name: string;
  isRunning: boolean;
  starts: number;
}

export interface ServerState {
  /** Where clients connect. */
  url: string;
  /** One server, or the nodes of a cluster. */
  nodes: Node[];
}

async function ask(path: string, method: string): Promise<ServerState> {
  const answer = await fetch(path, { method });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as ServerState;
}

export const serverState = (): Promise<ServerState> => ask("/control/state", "GET");

/** kill -9; resolves when it is back. */
export const restartServer = (name: string): Promise<ServerState> =>
  ask(`/control/restart/${encodeURIComponent(name)}`, "POST");
