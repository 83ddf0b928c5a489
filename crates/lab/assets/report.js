addEventListener("beforeprint", () => document.querySelectorAll("details:not([open])").forEach((one) => { one.open = true; one.dataset.shut = ""; }));
addEventListener("afterprint", () => document.querySelectorAll("details[data-shut]").forEach((one) => { one.open = false; delete one.dataset.shut; }));
