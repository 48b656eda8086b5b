package e2e

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// promtool runs the rules on a healthy service and on a failing one.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool, folder := promtool(t), filepath.Join("..", "deploy", "examples", "prometheus")
	for _, args := range [][]string{
		{"check", "config", "--syntax-only", "prometheus.yaml"},
		{"check", "rules", "alerts.yaml"},
		{"test", "rules", "alerts_test.yaml"},
	} {
		c := exec.Command(tool, args...)
		c.Dir = folder
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// panel is a panel of the dashboard with its queries.
type panel struct {
	title   string
	queries []string
}

// panels returns the panels of the dashboard, with all variables set.
func panels(t *testing.T) (all []panel) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(fromRoot(t, "deploy/examples/grafana/postrider.json")), &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$topic", ".*", "$subscription", ".*")
	for _, p := range dashboard.Panels {
		one := panel{title: p.Title}
		for _, target := range p.Targets {
			one.queries = append(one.queries, variables.Replace(target.Expr))
		}
		all = append(all, one)
	}
	return all
}

// Prometheus can parse every query of the dashboard.
func TestDashboardQueriesAreValid(t *testing.T) {
	t.Parallel()
	type rule struct{ Record, Expr string }
	var rules []rule
	for _, p := range panels(t) {
		for _, query := range p.queries {
			rules = append(rules, rule{fmt.Sprintf("panel:%d", len(rules)), query})
		}
	}
	require.Greater(t, len(rules), 30)
	text, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command(promtool(t), "check", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}

// firstDeadLetter are promtool's tests of a panel's query.
//
//go:embed testdata/firstdeadletter.yaml
var firstDeadLetter string

// A node's counter begins with the first dead letter, whether the node is new or has been restarted: it counts in the
// panel all the same, and once.
func TestDashboardCountsTheFirstDeadLetter(t *testing.T) {
	t.Parallel()
	all := panels(t)
	i := slices.IndexFunc(all, func(p panel) bool { return p.title == "Dead letters, last hour" })
	query, err := json.Marshal(all[i].queries[0])
	require.NoError(t, err)
	text := regexp.MustCompile(`\{\{(a|b)\}\}`).ReplaceAllString(firstDeadLetter,
		`postrider_dead_lettered_total{instance="$1",topic="orders",event_subscription="billing",reason="X"}`)
	text = regexp.MustCompile(`\{\{at (\w+) (\d)\}\}`).ReplaceAllString(text,
		`{expr: `+strings.ReplaceAll(string(query), "$", "$$")+`, eval_time: $1, exp_samples: [{labels: '{}', value: $2}]}`)
	file := filepath.Join(t.TempDir(), "test.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := exec.Command(promtool(t), "test", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}
