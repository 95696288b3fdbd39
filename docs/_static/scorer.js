// Classes and functions by their exact names, then guides, then the reference, and its
// members last: classes inherit each method of an environment.
var Scorer = {
  score: ([docname, title, anchor, description, score]) => {
    if (!docname.startsWith("reference/")) return score;
    return /Python (method|attribute|property)/.test(description) ? score - 90 : score - 20;
  },
  objNameMatch: 60,
  objPartialMatch: 3,
  objPrio: {0: 5, 1: 0, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 10,
  term: 5,
  partialTerm: 2,
};
