// A radio that several networks share: its slots over the next second, and what it hears.

import type { Heard, Radio, RadioNetwork } from "./api.js";
import { cells, element, fill, Rows, setAttribute, setText } from "./dom.js";
import { percent } from "./format.js";
import { stroke } from "./graph.js";

const SECOND_US = 1_000_000;
/** Slots shorter than this cannot be seen. */
const LEAST_SLOT_US = 2_000;

export class RadioView {
  private readonly table: Rows<RadioNetwork>;
  private readonly heard: Rows<Heard>;

  constructor(
    private readonly line: HTMLElement,
    body: HTMLElement,
    heardBody: HTMLElement,
    private readonly summary: HTMLElement,
  ) {
    this.table = new Rows(
      body,
      (network) => network.interface,
      () => cells(7),
      (row, network) => {
        fill(row, [
          network.ssid,
          network.state,
          network.channel === undefined ? "–" : String(network.channel),
          network.signal_dbm === undefined ? "–" : `${network.signal_dbm.toFixed(0)} dBm`,
          percent(network.share),
          `${(network.slot_us / 1e3).toFixed(0)} ms`,
          String(network.queue),
        ]);
      },
    );
    this.heard = new Rows(
      heardBody,
      (heard) => heard.bssid,
      () => cells(4),
      (row, heard) => {
        fill(row, [
          heard.ssid ?? "(hidden)",
          heard.channel === undefined ? "–" : String(heard.channel),
          heard.signal_dbm === undefined ? "–" : `${heard.signal_dbm.toFixed(0)} dBm`,
          heard.security,
        ]);
      },
    );
  }

  show(radio: Radio): void {
    this.table.show(radio.networks);
    const where = radio.channel === undefined ? "between channels" : `on channel ${radio.channel} now`;
    setText(this.summary, radio.trouble ?? `The card is ${where}.`);
    // Networks of one channel have its slot together.
    const slots = radio.networks
      .filter((network) => network.slot_us >= LEAST_SLOT_US)
      .sort((one, other) => (one.channel ?? 0) - (other.channel ?? 0));
    const part = (network: RadioNetwork): number => {
      const together = slots.filter((other) => other === network || (other.channel ?? -1) === network.channel);
      return network.slot_us / together.length;
    };
    const cycle = slots.reduce((sum, network) => sum + part(network), 0);
    const parts: { network: RadioNetwork; width: number; index: number }[] = [];
    for (let at = 0; at < SECOND_US && cycle > 0; at += cycle) {
      slots.forEach((network) => {
        const index = radio.networks.indexOf(network);
        parts.push({ network, width: part(network), index });
      });
    }
    // The last cycle goes beyond the second and is cut by the frame.
    while (this.line.childElementCount > parts.length) this.line.lastElementChild?.remove();
    while (this.line.childElementCount < parts.length) this.line.append(element("span"));
    parts.forEach(({ network, width, index }, place) => {
      const bar = this.line.children[place] as HTMLElement;
      bar.style.setProperty("flex", `0 0 ${((width / SECOND_US) * 100).toFixed(2)}%`);
      bar.style.setProperty("background", stroke(index).colour);
      setAttribute(bar, "title", network.ssid);
    });
    const told = slots.map((network) => `${network.ssid} ${(network.slot_us / 1e3).toFixed(0)} ms`).join(", ");
    setAttribute(this.line, "aria-label", `Slots of the radio in a second: ${told || "none"}`);
  }

  showHeard(heard: readonly Heard[]): void {
    this.heard.show(heard);
  }
}
