package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// An operator finds failures on the page Problems and dead letters by their content, repairs those with a merge patch
// and redelivers them. All are delivered, and the originals stay.
func testRepair(t *testing.T, w *window, s *shop) {
	const wrong = 40
	key := s.topic("payments")
	s.subscribe("payments", "billing", s.endpoint+"/currency")
	var events []string
	for i := range wrong + 10 {
		events = append(events, fmt.Sprintf(`{"specversion":"1.0","id":"%[1]d","source":"/shop","type":"order.paid",`+
			`"data":{"order":{"id":%[1]d,"currency":%[2]q,"total":1.10}}}`, i, []string{"XXX", "YYY"}[i/wrong]))
	}
	s.publish("payments", key, "["+strings.Join(events, ",")+"]")
	eventually(t, "all are dead letters",
		s.db.atLeast(len(events), "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'payments'"))
	w.visit(t, "/ui/problems", ".problems")
	require.Contains(t, w.textOf(t, ".problems"), "unknown currency")
	w.do(t, chromedp.Click(chromedp.CSS(`.problems a[href^="/ui/dead-letters/redeliver?topic=payments"]`)),
		chromedp.WaitVisible(chromedp.CSS(".action-form button")))
	require.Regexp(t, `50\s+dead letters match`, w.textOf(t, ".verdict"))

	w.visit(t, "/ui/dead-letters?topic=payments", "#page")
	w.do(t, chromedp.SendKeys(chromedp.CSS(`input[name="search"]`), `data.order.currency = "XXX"`+"\r"),
		chromedp.WaitReady(chromedp.CSS(`input[name="search"][value*="XXX"]`)))
	w.eventually(t, `/40 match/.test(document.querySelector("#page .total")?.textContent.replace(/\s+/g, " "))`)
	w.do(t, chromedp.Click(chromedp.CSS(`a[href^="/ui/dead-letters/repair?"]`)),
		chromedp.WaitReady(chromedp.CSS(".editor")))
	require.Contains(t, w.textOf(t, ".verdict"), "40")
	w.value(t, `((e) => { e.value = '{"data":{"order":{"currency":"EUR"}}}'; e.form.noValidate = true; return 1 })`+
		`(document.querySelector("#patch"))`)
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="preview"]`)),
		chromedp.WaitReady(chromedp.CSS(`button[value="start"]`)))
	require.Contains(t, w.textOf(t, "[role=status]"), "40 changed, 0 unchanged")
	w.requireAccessible(t, "repair of many")
	const redelivered = "SELECT count(*) FROM postrider.deliveries " +
		"WHERE topic = 'payments' AND redelivered_from IS NOT NULL"
	require.Zero(t, one[int](s.db, redelivered))
	w.do(t, chromedp.Click(chromedp.CSS(`button[value="start"]`)), chromedp.WaitReady(chromedp.CSS(".done")))
	w.eventually(t, `document.querySelector(".verdict .badge").textContent === "done"`) // the page refreshes until it is
	require.Contains(t, w.textOf(t, ".verdict"), "40 of 40")
	eventually(t, "all repaired events are delivered", s.db.atLeast(wrong, redelivered+
		` AND state = 'delivered' AND edited_by IS NOT NULL AND edit = '{"data": {"order": {"currency": "EUR"}}}'`))
	require.Equal(t, wrong, one[int](s.db, `SELECT count(*) FROM postrider.dead_letters WHERE topic = 'payments'
		AND redelivered_at IS NOT NULL AND data @> '{"order": {"currency": "XXX"}}'`))
	w.requireNoConsoleErrors(t, "repair")

	w.visit(t, "/ui/dead-letters/"+one[string](s.db, `SELECT dead_letter_id::text FROM postrider.dead_letters
		WHERE topic = 'payments' AND redelivered_at IS NOT NULL LIMIT 1`), ".action-form")
	w.click(t, ".action-form .primary", ".rejected")
	require.Contains(t, w.textOf(t, ".rejected"), "was redelivered already")
	w.ignore(t, fmt.Sprint(http.StatusConflict))
	w.click(t, `form[action$="/purge"] button`, `form[method="post"][action$="/purge"] button`)
	w.click(t, `form[method="post"][action$="/purge"] button`, ".done")
	require.Equal(t, len(events)-1, one[int](s.db, "SELECT count(*) FROM postrider.dead_letters WHERE topic = 'payments'"))
}
