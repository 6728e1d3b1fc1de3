// Live graphs on a canvas: stacked areas and lines over the last minutes, newest at the right.

import { History, KEPT, type Point } from "./history.js";

/** A scale's largest value, a round one. */
export function roundUp(value: number): number {
  if (value <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(value));
  const digit = [1, 2, 5, 10].find((candidate) => candidate * size >= value) ?? 10;
  return digit * size;
}

export interface Figure {
  canvas: HTMLCanvasElement;
  /** What is drawn of a point; null leaves a gap. */
  pick: (point: Point) => number | null;
  /** Areas on top of each other, else lines. */
  stacked: boolean;
  /** Smallest upper end of the scale. */
  least: number;
  label: (value: number) => string;
}

/** Names the colour and the dashes of a network: both, so that colour is not all that tells lines apart. */
export function stroke(index: number): { colour: string; dash: number[] } {
  const dashes = [[], [6, 3], [2, 2], [8, 3, 2, 3]];
  return { colour: `var(--line-${index % 8})`, dash: dashes[Math.floor(index / 8) % dashes.length] ?? [] };
}

function resolved(colour: string, styles: CSSStyleDeclaration): string {
  const name = /^var\((.+)\)$/.exec(colour)?.[1];
  return name ? styles.getPropertyValue(name).trim() : colour;
}

/** The largest value that a figure shows, so that all networks share one scale. */
export function top(history: History, figure: Figure): number {
  let most = 0;
  for (let at = 0; at < KEPT; at++) {
    let sum = 0;
    for (const points of history.networks.values()) {
      const point = points[points.length - 1 - at];
      const value = point ? (figure.pick(point) ?? 0) : 0;
      sum = figure.stacked ? sum + value : Math.max(sum, value);
    }
    most = Math.max(most, sum);
  }
  return roundUp(Math.max(most, figure.least));
}

/** Draws a figure. `slide` is how much of a second has passed since the last sample, 0 to 1. */
export function draw(figure: Figure, history: History, slide: number): void {
  const { canvas } = figure;
  const scale = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  if (width === 0 || height === 0) return;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  const styles = getComputedStyle(canvas);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  const most = top(history, figure);
  const step = width / (KEPT - 2);
  const x = (fromEnd: number): number => width - (fromEnd + slide - 1) * step;
  const y = (value: number): number => height - (value / most) * (height - 14);
  grid(context, styles, width, y, most, figure.label);
  const below = new Array<number>(KEPT).fill(0);
  let index = 0;
  for (const points of history.networks.values()) {
    const { colour, dash } = stroke(index++);
    context.strokeStyle = context.fillStyle = resolved(colour, styles);
    context.setLineDash(dash);
    if (figure.stacked) area(context, points, below, figure.pick, x, y);
    else line(context, points, figure.pick, x, y);
  }
  context.setLineDash([]);
}

function grid(
  context: CanvasRenderingContext2D,
  styles: CSSStyleDeclaration,
  width: number,
  y: (value: number) => number,
  most: number,
  label: (value: number) => string,
): void {
  context.lineWidth = 1;
  context.strokeStyle = styles.getPropertyValue("--grid").trim();
  context.fillStyle = styles.getPropertyValue("--faint").trim();
  context.font = "11px system-ui, sans-serif";
  for (const part of [0.5, 1]) {
    const height = Math.round(y(most * part)) + 0.5;
    context.beginPath();
    context.moveTo(0, height);
    context.lineTo(width, height);
    context.stroke();
    context.fillText(label(most * part), 4, height - 3);
  }
}

function area(
  context: CanvasRenderingContext2D,
  points: Point[],
  below: number[],
  pick: Figure["pick"],
  x: (fromEnd: number) => number,
  y: (value: number) => number,
): void {
  const upper: number[] = [];
  points.forEach((_, fromEnd) => {
    const point = points[points.length - 1 - fromEnd];
    upper.push((below[fromEnd] ?? 0) + (point ? (pick(point) ?? 0) : 0));
  });
  context.beginPath();
  upper.forEach((value, fromEnd) => context.lineTo(x(fromEnd), y(value)));
  for (let fromEnd = upper.length - 1; fromEnd >= 0; fromEnd--) context.lineTo(x(fromEnd), y(below[fromEnd] ?? 0));
  context.closePath();
  context.globalAlpha = 0.55;
  context.fill();
  context.globalAlpha = 1;
  context.beginPath();
  upper.forEach((value, fromEnd) => context.lineTo(x(fromEnd), y(value)));
  context.lineWidth = 1.5;
  context.stroke();
  upper.forEach((value, fromEnd) => (below[fromEnd] = value));
}

function line(
  context: CanvasRenderingContext2D,
  points: Point[],
  pick: Figure["pick"],
  x: (fromEnd: number) => number,
  y: (value: number) => number,
): void {
  context.lineWidth = 1.5;
  context.beginPath();
  let isDrawing = false;
  points.forEach((_, fromEnd) => {
    const point = points[points.length - 1 - fromEnd];
    const value = point ? pick(point) : null;
    if (value === null) {
      isDrawing = false;
    } else if (isDrawing) {
      context.lineTo(x(fromEnd), y(value));
    } else {
      context.moveTo(x(fromEnd), y(value));
      isDrawing = true;
    }
  });
  context.stroke();
}
