// Elements without markup in strings: what the daemon says is always text, never HTML.

type Child = Node | string | null | undefined;
type Properties = Record<string, string | number | boolean | ((event: Event) => void) | undefined>;

/** Makes an element; `on…` properties are listeners, all others attributes. */
export function element<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Properties = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== undefined && value !== false) made.setAttribute(key, String(value));
  }
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined));
  return made;
}

/** The element of that id, which the page has. */
export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found as T;
}

/** Sets a text only if it is another one: what does not change costs no layout. */
export function setText(node: Node, text: string): void {
  if (node.textContent !== text) node.textContent = text;
}

export function setAttribute(node: Element, name: string, value: string): void {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Rows that are kept by key, so that focus and selection survive an update. */
export class Rows<T> {
  private readonly kept = new Map<string, HTMLElement>();

  constructor(
    private readonly parent: HTMLElement,
    private readonly key: (item: T) => string,
    private readonly make: (item: T) => HTMLElement,
    private readonly update: (row: HTMLElement, item: T) => void,
  ) {}

  show(items: readonly T[]): void {
    const wanted = new Set<string>();
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      if (wanted.has(key)) continue;
      wanted.add(key);
      let row = this.kept.get(key);
      if (!row) {
        row = this.make(item);
        this.kept.set(key, row);
      }
      this.update(row, item);
      if (row === place) place = place.nextElementSibling;
      else this.parent.insertBefore(row, place);
    }
    for (const [key, row] of this.kept) {
      if (wanted.has(key)) continue;
      row.remove();
      this.kept.delete(key);
    }
  }
}

/** A table row of so many cells. */
export function cells(count: number, heading = true): HTMLTableRowElement {
  const row = element("tr");
  for (let column = 0; column < count; column++) {
    row.append(heading && column === 0 ? element("th", { scope: "row" }) : element("td"));
  }
  return row;
}

export function fill(row: HTMLElement, texts: readonly string[]): void {
  texts.forEach((text, column) => {
    const cell = row.children[column];
    if (cell) setText(cell, text);
  });
}

/** Asks before something that cannot be taken back by one press. */
export function confirmed(question: string, word: string): Promise<boolean> {
  return new Promise((resolve) => {
    const dialog = element("dialog", { "aria-label": question });
    const answer = (yes: boolean): void => {
      dialog.close();
      dialog.remove();
      resolve(yes);
    };
    const no = element("button", { type: "button", onclick: () => answer(false) }, "Cancel");
    const yes = element("button", { type: "button", class: "danger", onclick: () => answer(true) }, word);
    dialog.addEventListener("cancel", (event) => {
      event.preventDefault();
      answer(false);
    });
    dialog.append(element("p", {}, question), element("div", { class: "row" }, no, yes));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}
