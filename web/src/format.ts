// How figures are written: as the commands write them.

export function rate(bits: number | null | undefined): string {
  if (bits === null || bits === undefined) return "–";
  if (bits === 0) return "0";
  return bits < 1e6 ? `${(bits / 1e3).toFixed(0)} kbit/s` : `${(bits / 1e6).toFixed(1)} Mbit/s`;
}

export function bytes(count: number): string {
  for (const [size, unit] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]] as const) {
    if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${count} B`;
}

export function millis(micros: number | null | undefined): string {
  return micros === null || micros === undefined ? "–" : `${(micros / 1e3).toFixed(1)} ms`;
}

export function percent(part: number | null | undefined, digits = 0): string {
  return part === null || part === undefined ? "–" : `${(part * 100).toFixed(digits)} %`;
}

export function clock(unixMillis: number): string {
  return new Date(unixMillis).toLocaleTimeString();
}
