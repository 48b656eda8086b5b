package main

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

// alertNames are those of examples/prometheus/alerts.yaml.
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
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "examples/prometheus/alerts.yaml")), &rules))
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			names = append(names, rule.Alert)
			require.Equal(t, "docs/operations.md#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"], rule.Alert)
		}
	}
	require.NotEmpty(t, names)
	return names
}

// Whoever is woken finds what to do.
func TestEachAlertHasItsRunbook(t *testing.T) {
	t.Parallel()
	operations, tests := fromRoot(t, "docs/operations.md"), fromRoot(t, "examples/prometheus/alerts_test.yaml")
	for _, name := range alertNames(t) {
		require.Contains(t, operations, "\n#### "+name+"\n")
		require.Contains(t, tests, name)
	}
}

// Prometheus' own judge runs the rules on a service that is well and on one that is not.
func TestAlertsFire(t *testing.T) {
	t.Parallel()
	tool, folder := promtool(t), filepath.Join("..", "..", "examples", "prometheus")
	for _, args := range [][]string{{"check", "config", "--syntax-only", "prometheus.yaml"}, {"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		c := exec.Command(tool, args...)
		c.Dir = folder
		out, err := c.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

// Every query of the dashboard is one that Prometheus can read.
func TestDashboardAsksWhatCanBeAsked(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(fromRoot(t, "examples/grafana/postrider.json")), &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$topic", ".*", "$subscription", ".*")
	type rule struct{ Record, Expr string }
	var rules []rule
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			rules = append(rules, rule{fmt.Sprintf("panel:%d", len(rules)), variables.Replace(target.Expr)})
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
