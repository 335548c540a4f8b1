/** The small process behind the page: it knows where the server is, and can kill it. */

export interface ServerState {
  url: string;
  isRunning: boolean;
  starts: number;
}

async function ask(path: string, method: string): Promise<ServerState> {
  const answer = await fetch(path, { method });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return (await answer.json()) as ServerState;
}

export const serverState = (): Promise<ServerState> => ask("/control/state", "GET");

/** kill -9; resolves when it is back. */
export const restartServer = (): Promise<ServerState> => ask("/control/restart", "POST");
