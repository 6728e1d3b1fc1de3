// The flows: what carries each of them, and why.

import type { Flow, Flows } from "./api.js";
import { cells, element, fill, Rows, setText } from "./dom.js";
import { millis, rate } from "./format.js";

/** Rows at once; the filter finds the others. */
const SHOWN = 100;

export type Pin = (destination: string) => void;

export class FlowTable {
  private readonly rows: Rows<Flow>;
  private latest: Flows = { flows: [], left_out: 0, remarks: [] };

  constructor(
    body: HTMLElement,
    private readonly filter: HTMLInputElement,
    private readonly summary: HTMLElement,
    pin: Pin,
  ) {
    this.rows = new Rows(
      body,
      (flow) => `${flow.protocol} ${flow.source} ${flow.destination}`,
      (flow) => {
        const row = cells(8);
        const host = flow.destination.replace(/:\d+$/, "").replace(/^\[|\]$/g, "");
        const button = element("button", { type: "button", "aria-label": `Hold flows to ${host}`, onclick: () => pin(host) }, "Hold…");
        row.append(element("td", {}, button));
        return row;
      },
      (row, flow) => {
        fill(row, [
          flow.program ?? "–",
          flow.protocol,
          flow.destination,
          flow.treatment,
          flow.network ?? "all",
          rate((flow.sending ?? 0) + (flow.receiving ?? 0)),
          millis(flow.rtt_us),
          flow.why,
        ]);
      },
    );
    filter.addEventListener("input", () => this.draw());
  }

  show(flows: Flows): void {
    this.latest = flows;
    this.draw();
  }

  private draw(): void {
    const wanted = this.filter.value.trim().toLowerCase();
    const { flows, left_out, remarks } = this.latest;
    const matching = wanted === "" ? flows : flows.filter((flow) => describes(flow, wanted));
    this.rows.show(matching.slice(0, SHOWN));
    const more = matching.length > SHOWN ? `, the busiest ${SHOWN} shown` : "";
    const out = left_out > 0 ? `, ${left_out} more not listed` : "";
    const which = wanted === "" ? "" : ` of ${flows.length}`;
    setText(this.summary, [`${matching.length}${which} flows${more}${out}`, ...remarks].join(". "));
  }
}

function describes(flow: Flow, wanted: string): boolean {
  const texts = [flow.program, flow.protocol, flow.source, flow.destination, flow.treatment, flow.network, flow.why];
  return texts.some((text) => text?.toLowerCase().includes(wanted));
}
