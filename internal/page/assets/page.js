// Makes the page live. Without it the page is whole, and says how things were when it was loaded.
"use strict";
(() => {
	const live = document.getElementById("live");
	const clock = () => new Date().toISOString().slice(11, 19) + " UTC";
	const say = (text, lost) => {
		live.classList.toggle("lost", lost);
		if (live.textContent !== text) live.textContent = text;
	};

	// The clock is that of the node: its time at the load, and what has passed here since.
	let nodeTime = 0, loaded = 0;
	const setTime = (main) => {
		nodeTime = Date.parse(main.dataset.now);
		loaded = performance.now();
	};
	const age = (at) => {
		const s = Math.max(0, Math.floor((nodeTime + performance.now() - loaded - at) / 1000));
		if (s < 120) return s + "s ago";
		if (s < 7200) return Math.floor(s / 60) + "m ago";
		if (s < 172800) return Math.floor(s / 3600) + "h ago";
		return Math.floor(s / 86400) + "d ago";
	};
	const tick = () => {
		for (const t of document.querySelectorAll("time[data-ago]")) {
			const text = age(Date.parse(t.dateTime));
			if (t.textContent !== text) t.textContent = text;
		}
	};

	// What a part says, but for how long ago it was.
	const content = (part) => {
		const copy = part.cloneNode(true);
		for (const t of copy.querySelectorAll("time[data-ago]")) t.textContent = "";
		for (const r of copy.querySelectorAll("tr.fresh")) r.classList.remove("fresh");
		for (const r of copy.querySelectorAll("[class='']")) r.removeAttribute("class");
		for (const d of copy.querySelectorAll("details")) d.open = false;
		return copy.innerHTML;
	};
	// Rows that were not there before are shown for a moment.
	const showFresh = (was, is) => {
		const rows = (part) => [...part.querySelectorAll("tbody tr")].map((r) => [r, content(r)]);
		const known = new Set(rows(was).map(([, text]) => text));
		for (const [row, text] of rows(is)) if (!known.has(text)) row.classList.add("fresh");
	};
	// Only what has changed is replaced, so that focus, selection and place stay where they are.
	const replace = (was, is) => {
		if (content(was) === content(is)) return;
		showFresh(was, is);
		const focus = was.contains(document.activeElement) ? document.activeElement : null;
		const of = (part, sample) => [...part.querySelectorAll(sample.localName)];
		const place = focus && of(was, focus).filter((e) => e.getAttribute("href") === focus.getAttribute("href")).indexOf(focus);
		for (const d of is.querySelectorAll("details")) d.open = !!document.querySelector("#" + d.id + "[open]");
		was.replaceWith(is);
		if (focus) {
			const same = of(is, focus).filter((e) => e.getAttribute("href") === focus.getAttribute("href"));
			(same[place] || same[0] || document.getElementById("main")).focus({ preventScroll: true });
		}
	};
	const update = (next) => {
		const was = document.getElementById("main"), is = next.getElementById("main");
		document.title = next.title;
		setTime(is);
		was.dataset.id = is.dataset.id;
		const parts = [...is.children].map((p) => document.adoptNode(p));
		const same = parts.length === was.children.length && parts.every((p, i) => p.id === was.children[i].id);
		if (same) [...was.children].forEach((old, i) => replace(old, parts[i]));
		else was.replaceChildren(...parts);
		document.querySelector("footer").replaceWith(document.adoptNode(next.querySelector("footer")));
		tick();
	};

	let busy = false, again = false;
	const load = async (words) => {
		if (busy) {
			again = true;
			return;
		}
		busy = true;
		try {
			do {
				again = false;
				const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
				const type = answer.headers.get("Content-Type") || "";
				if (!type.startsWith("text/html")) throw new Error(await answer.text());
				update(new DOMParser().parseFromString(await answer.text(), "text/html"));
			} while (again);
			say("Live. " + (words ? clock() + " " + words : "Changes appear by themselves."), false);
		} catch (e) {
			say("Not updated since " + new Date(nodeTime).toISOString().slice(11, 19) + " UTC: " + e.message, true);
		}
		busy = false;
	};

	let source = null, retry = 0;
	const listen = () => {
		clearTimeout(retry);
		if (source || document.hidden) return;
		source = new EventSource("/updates");
		source.addEventListener("state", (e) => {
			const known = e.lastEventId === document.getElementById("main").dataset.id;
			if (!known) load(e.data);
			else if (!live.textContent.startsWith("Live.")) say("Live. Changes appear by themselves.", false);
		});
		source.addEventListener("error", () => {
			say("Not live since " + clock() + "; trying again", true);
			if (source.readyState === EventSource.CLOSED) { // refused: the browser does not ask again
				source.close();
				source = null;
				retry = setTimeout(listen, 15000);
			}
		});
	};
	// A browser has few connections to one host: a page that nobody sees takes none.
	document.addEventListener("visibilitychange", () => {
		if (document.hidden && source) {
			source.close();
			source = null;
		}
		listen();
	});
	setTime(document.getElementById("main"));
	setInterval(tick, 1000);
	listen();
})();
