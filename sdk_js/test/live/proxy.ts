/** A proxy between client and server that does what some networks do: refuses, cuts. */
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server, type Socket } from "node:net";

const REFUSED = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

export interface Manners {
  /** Answer upgrades with 400. */
  refusesUpgrades?: boolean;
  /** Cut connections, whatever they carry, when they are this old. */
  cutsAfterMs?: number;
}

export class Proxy {
  upgrades = 0;
  cuts = 0;
  private listener: Server;
  private open = new Set<Socket>();

  constructor(
    private port: number,
    /** May change at any time. */
    readonly manners: Manners,
  ) {
    this.listener = createServer((client) => this.serve(client));
  }

  async start(): Promise<this> {
    this.listener.listen(0, "127.0.0.1");
    await once(this.listener, "listening");
    return this;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.listener.address() as AddressInfo).port}`;
  }

  close(): void {
    this.listener.close();
    this.cut();
  }

  /** Cut all that is open. */
  cut(): void {
    for (const socket of this.open) socket.destroy();
  }

  private serve(client: Socket): void {
    this.keep(client);
    client.once("data", (head) => {
      const isUpgrade = /upgrade: websocket/i.test(head.toString("latin1"));
      if (isUpgrade) this.upgrades += 1;
      if (isUpgrade && this.manners.refusesUpgrades) {
        client.end(REFUSED);
        return;
      }
      const server = connect(this.port, "127.0.0.1");
      this.keep(server);
      server.write(head);
      client.pipe(server).pipe(client);
      server.on("close", () => client.destroy());
      client.on("close", () => server.destroy());
    });
    if (this.manners.cutsAfterMs) {
      const timer = setTimeout(() => {
        this.cuts += 1;
        client.destroy();
      }, this.manners.cutsAfterMs);
      client.on("close", () => clearTimeout(timer));
    }
  }

  private keep(socket: Socket): void {
    this.open.add(socket);
    socket.on("error", () => {});
    socket.on("close", () => this.open.delete(socket));
  }
}
