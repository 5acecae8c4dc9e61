"use strict";
(() => {
  const at = id => document.getElementById(id);
  const data = document.body.dataset;
  let end = performance.now() + Number(data.left);

  const two = number => String(number).padStart(2, "0");

  const tick = () => {
    const left = at("left");
    if (!left) return;
    const seconds = Math.max(0, Math.ceil((end - performance.now()) / 1000));
    const [days, hours, minutes] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
    const clock = (days || hours ? two(hours) + ":" : "") + two(minutes) + ":" + two(seconds % 60);
    left.textContent = seconds ? "(" + (days ? days + " d " : "") + clock + " left)" : "(over)";
  };

  const ready = () => {
    document.querySelectorAll("button[data-copy]").forEach(button => { button.hidden = false; });
    tick();
  };

  const copy = async button => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch {
      // Without a secure page there is no clipboard: what is marked can be copied by hand.
      getSelection().selectAllChildren(button.previousElementSibling);
      button.textContent = "Marked";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  document.addEventListener("click", event => {
    const button = event.target.closest("button[data-copy]");
    if (button) copy(button);
  });

  // Only what has changed is replaced: whoever is reading or marking something is not disturbed.
  const shown = {};
  const put = (id, html) => {
    if (shown[id] === html) return;
    shown[id] = html;
    at(id).innerHTML = html;
  };

  const news = event => {
    const told = JSON.parse(event.data);
    end = performance.now() + told.left_ms;
    data.standing = told.standing;
    document.title = told.title;
    put("state", told.state);
    put("pay", told.pay);
    at("lost").hidden = true;
    ready();
  };

  const stream = new EventSource(data.events);
  stream.addEventListener("standing", news);
  stream.addEventListener("open", () => { at("lost").hidden = true; });
  stream.addEventListener("error", () => {
    at("lost").hidden = false;
    // It comes again by itself, unless it was refused.
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 15000);
  });
  setInterval(tick, 1000);
  ready();
})();
