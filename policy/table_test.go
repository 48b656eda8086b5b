package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"postrider/policy"

	"github.com/stretchr/testify/require"
)

// The two tables below are from Microsoft's pages, not computed from the policies. The cells:
//
//	ok             delivered
//	step           retried on the schedule
//	>=5m           retried after at least that
//	never          never retried
//	DL|step        never retried with a dead-letter destination, otherwise as after the bar
type tableRow struct {
	met   policy.Result
	cells [9]string
}

var bothKinds = []policy.EndpointKind{policy.KindWebhook, policy.KindAzureResource}

// tableColumns are the columns of both tables. The pages up to 2019 have one kind of endpoint.
var tableColumns = [9]struct {
	policy string
	kinds  []policy.EndpointKind
}{
	{"preview-2017", bothKinds},
	{"ga-2018", bothKinds},
	{"ga-2019", bothKinds},
	{"ga-2021", []policy.EndpointKind{policy.KindWebhook}},
	{"ga-2021", []policy.EndpointKind{policy.KindAzureResource}},
	{"namespace-2023", []policy.EndpointKind{policy.KindWebhook}},
	{"namespace-2023", []policy.EndpointKind{policy.KindAzureResource}},
	{"ga-2026", []policy.EndpointKind{policy.KindWebhook}},
	{"ga-2026", []policy.EndpointKind{policy.KindAzureResource}},
}

func status(code int) policy.Result            { return policy.Result{Status: code} }
func failure(e policy.ErrorKind) policy.Result { return policy.Result{Err: e} }

// statusTable: preview-2017, ga-2018, ga-2019, ga-2021 webhook, ga-2021 azure, namespace-2023 webhook, namespace-2023
// azure, ga-2026 webhook, ga-2026 azure.
var statusTable = []tableRow{
	{status(200), [9]string{"ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok"}},
	{status(201), [9]string{"step", "step", "ok", "ok", "ok", "ok", "ok", "ok", "ok"}},
	{status(202), [9]string{"ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok", "ok"}},
	{status(203), [9]string{"step", "step", "ok", "ok", "ok", "ok", "ok", "ok", "ok"}},
	{status(204), [9]string{"step", "step", "ok", "ok", "ok", "ok", "ok", "ok", "ok"}},
	{status(205), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(206), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(299), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(301), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(302), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(304), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(308), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(400), [9]string{"step", "DL|step", "DL|>=5m", "never", "never", "never", "never", "never", "never"}},
	{status(401), [9]string{"step", "step", ">=5m", "never", ">=5m", "never", ">=5m", "never", ">=5m"}},
	{status(402), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(403), [9]string{"step", "step", ">=5m", "never", "never", "never", "never", "never", "never"}},
	{status(404), [9]string{"step", "step", ">=5m", "never", ">=5m", "never", ">=5m", ">=10s", ">=5m"}},
	{status(405), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(408), [9]string{"step", "step", ">=2m", ">=2m", ">=2m", ">=2m", ">=2m", ">=2m", ">=2m"}},
	{status(409), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(410), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(413), [9]string{"step", "step", "DL|>=10s", "never", "never", "never", "never", "never", "never"}},
	{status(414), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", "never", "never", ">=10s", ">=10s"}},
	{status(429), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(500), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(502), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(503), [9]string{"step", "step", ">=30s", ">=30s", ">=30s", ">=30s", ">=30s", ">=30s", ">=30s"}},
	{status(504), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
	{status(599), [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}},
}

// errorTable has the columns of statusTable.
var errorTable = []tableRow{
	{failure(policy.ErrorTimeout), errorCells},
	{failure(policy.ErrorCanceled), errorCells},
	{failure(policy.ErrorSocket), errorCells},
	{failure(policy.ErrorDNS), errorCells},
	{failure(policy.ErrorUnauthorized), errorCells},
	{failure(policy.ErrorArgument), errorCells},
}

// brokerTable has the columns of statusTable. The pages name none of these: they are "all others".
var brokerTable = []tableRow{
	{failure(policy.ErrorFull), brokerCells},
	{failure(policy.ErrorDisabled), brokerCells},
	{failure(policy.ErrorSession), brokerCells},
}

var errorCells = [9]string{"step", "step", ">=10s", ">=10s", ">=10s", "never", "never", ">=10s", ">=10s"}

var brokerCells = [9]string{"step", "step", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s", ">=10s"}

func TestStatusTable(t *testing.T) {
	t.Parallel()
	testTable(t, statusTable)
}

func TestErrorTable(t *testing.T) {
	t.Parallel()
	testTable(t, errorTable)
}

func TestBrokerTable(t *testing.T) {
	t.Parallel()
	testTable(t, brokerTable)
	for _, p := range policy.Builtins() {
		for _, kind := range bothKinds {
			for _, row := range brokerTable {
				require.Equal(t, row.met.String(), p.Cell(kind, row.met).Condition, "%s has a cell of its own", p.Name)
			}
		}
	}
}

func testTable(t *testing.T, rows []tableRow) {
	t.Helper()
	for _, row := range rows {
		for i, cell := range row.cells {
			column := tableColumns[i]
			for _, kind := range column.kinds {
				testCell(t, builtin(t, column.policy), kind, row.met, cell)
			}
		}
	}
}

// testCell calls Decide without and with a dead-letter destination.
func testCell(t *testing.T, p *policy.Policy, kind policy.EndpointKind, met policy.Result, cell string) {
	t.Helper()
	without, with := cell, cell
	if retried, ok := strings.CutPrefix(cell, "DL|"); ok {
		without, with = retried, "never"
	}
	a := firstAttempt(p, met)
	a.Kind = kind
	requireCell(t, p, a, without)
	a.DeadLetter = true
	requireCell(t, p, a, with)
}

func requireCell(t *testing.T, p *policy.Policy, a policy.Attempt, cell string) {
	t.Helper()
	v, about := policy.Decide(p, a), fmt.Sprintf("%s %s %s", p.Name, a.Kind, a.Result)
	require.Equal(t, cell == "ok", p.Classify(a.Kind, a.Result) == policy.OutcomeDelivered, about)
	if cell == "ok" {
		require.Equal(t, policy.Delivered, v.Action, about)
		return
	}
	if cell == "never" {
		requireEnd(t, a, v, neverReason(a.Result), about)
		return
	}
	require.Equal(t, policy.Retry, v.Action, about)
	floor := time.Duration(0)
	if least, ok := strings.CutPrefix(cell, ">="); ok {
		floor = duration(t, least)
	}
	require.Equal(t, floor, v.Why.Floor, about)
	require.Equal(t, max(floor, 10*time.Second), v.At.Sub(a.FinishedAt), "%s: every schedule begins with 10 s", about)
}

func requireEnd(t *testing.T, a policy.Attempt, v policy.Verdict, reason policy.Reason, about ...any) {
	t.Helper()
	action := policy.Drop
	if a.DeadLetter {
		action = policy.DeadLetter
	}
	require.Equal(t, action, v.Action, about...)
	require.Equal(t, reason, v.Reason, about...)
}

func neverReason(r policy.Result) policy.Reason {
	if r.Status == 400 {
		return "UndeliverableDueToHttpBadRequest"
	}
	return "UndeliverableDueToClientError"
}

func duration(t *testing.T, s string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(s)
	require.NoError(t, err)
	return d
}

func TestDeliveryOutcomes(t *testing.T) {
	t.Parallel()
	p := builtin(t, "namespace-2023")
	for met, word := range map[policy.Result]policy.Outcome{
		status(200): "Delivered", status(204): "Delivered",
		status(400): "BadRequest", status(401): "Unauthorized", status(403): "Forbidden",
		status(404): "NotFound", status(410): "GenericError", status(408): "TimedOut",
		status(413): "PayloadTooLarge", status(429): "Busy", status(503): "Busy",
		status(302): "GenericError", status(414): "GenericError", status(418): "GenericError",
		status(500): "GenericError", status(504): "GenericError", status(999): "GenericError",
		failure(policy.ErrorTimeout): "TimedOut", failure(policy.ErrorCanceled): "Canceled",
		failure(policy.ErrorSocket): "SocketError", failure(policy.ErrorDNS): "ResolutionError",
		failure(policy.ErrorUnauthorized): "Unauthorized", failure(policy.ErrorArgument): "GenericError",
		failure(policy.ErrorFull): "Full", failure(policy.ErrorDisabled): "Disabled",
		failure(policy.ErrorSession): "SessionQueueNotSupported",
		failure("unheard-of"):        "GenericError", {}: "GenericError",
	} {
		require.Equal(t, word, p.Classify(policy.KindWebhook, met), met.String())
	}
	require.Equal(t, policy.OutcomeGenericError, builtin(t, "preview-2017").Classify(policy.KindWebhook, status(201)),
		"201 is a failure in preview-2017")
}

func TestCellPrefersTheExactStatus(t *testing.T) {
	t.Parallel()
	p := policy.Policy{Cells: []policy.Cell{
		cell("other", policy.ActionNever),
		{EndpointKind: policy.KindAzureResource, Condition: "503", Action: policy.ActionSuccess},
		{EndpointKind: policy.KindWebhook, Condition: "503", Action: policy.ActionRetry, MinDelay: second},
	}}
	require.Equal(t, p.Cells[2], p.Cell(policy.KindWebhook, status(503)))
	require.Equal(t, p.Cells[0], p.Cell(policy.KindWebhook, status(500)))
	require.Equal(t, p.Cells[0], p.Cell(policy.KindWebhook, failure(policy.ErrorDNS)))
	require.Equal(t, p.Cells[0], p.Cell(policy.KindWebhook, failure(policy.ErrorFull)))
	require.Equal(t, policy.ActionRetry, p.Cell(policy.KindAzureResource, status(500)).Action,
		"nothing fits: retried, not lost")
}
