/** What just happened, in sentences. */

const KEPT = 30;

export interface Piece {
  at: number;
  text: string;
  /** `bad` is loud, `good` is a relief, `plain` is neither. */
  tone: "plain" | "good" | "bad";
}

export class News {
  readonly pieces: Piece[] = [];
  onPiece: () => void = () => {};

  tell(text: string, tone: Piece["tone"] = "plain"): void {
    this.pieces.unshift({ at: Date.now(), text, tone });
    this.pieces.length = Math.min(this.pieces.length, KEPT);
    this.onPiece();
  }
}
