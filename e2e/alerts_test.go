package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// alertNames are those of deploy/examples/prometheus/alerts.yaml.
func alertNames(t *testing.T) (names []string) {
	t.Helper()
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "deploy/examples/prometheus/alerts.yaml")), &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			require.Equal(t, "https://docs.example.com/postrider/operate/monitor.md#"+strings.ToLower(rule.Alert),
				rule.Annotations["runbook_url"], rule.Alert)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// Each alert has a runbook and a test.
func TestEachAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	operations, tests := fromRoot(t, "docs/operate/monitor.md"), fromRoot(t, "deploy/examples/prometheus/alerts_test.yaml")
	for _, name := range alertNames(t) {
		require.Contains(t, operations, "\n### "+name+"\n")
		require.Contains(t, tests, name)
	}
}

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

// A node's counter begins with the first dead letter, whether the node is new or has been restarted: it counts in the
// panel all the same, and once.
func TestDashboardCountsTheFirstDeadLetter(t *testing.T) {
	t.Parallel()
	var query string
	for _, p := range panels(t) {
		if p.title == "Dead letters, last hour" {
			query = p.queries[0]
		}
	}
	require.NotEmpty(t, query)
	type series struct{ Series, Values string }
	type sample struct {
		Labels string
		Value  float64
	}
	type evaluation struct {
		Expr    string
		At      string   `yaml:"eval_time"`
		Samples []sample `yaml:"exp_samples"`
	}
	type test struct {
		Interval    string
		Input       []series     `yaml:"input_series"`
		Evaluations []evaluation `yaml:"promql_expr_test"`
	}
	of := func(instance string) string {
		return `postrider_dead_lettered_total{instance="` + instance +
			`",topic="orders",event_subscription="billing",reason="TimeToLiveExceeded"}`
	}
	at := func(when string, value float64) evaluation { return evaluation{query, when, []sample{{"{}", value}}} }
	tests := []test{
		{"1m", []series{{of("a"), "_x30 1x200"}, {of("b"), "_x30 1x200"}}, []evaluation{
			at("20m", 0), at("35m", 1), at("89m", 1), at("100m", 0),
		}},
		{"1m", []series{{of("a"), "_x30 1x9 5x200"}}, []evaluation{at("60m", 5), at("120m", 0)}},
		// the process began anew after an hour
		{"1m", []series{{of("a"), "7x60 _x60 1x100"}}, []evaluation{at("100m", 0), at("130m", 1)}},
		{"1m", []series{{of("a"), "7x100"}, {of("b"), "_x40 2x60"}}, []evaluation{at("90m", 2)}},
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "1m", "tests": tests})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "test.yaml")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	out, err := exec.Command(promtool(t), "test", "rules", file).CombinedOutput()
	require.NoError(t, err, string(out))
}
