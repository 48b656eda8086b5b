package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What compose is asked to run is durable, bounded, and gets the time that a clean stop takes.
func TestComposeIsFitForUse(t *testing.T) {
	t.Parallel()
	var compose struct {
		Services map[string]struct {
			Command         any
			StopGracePeriod string `yaml:"stop_grace_period"`
			Restart         string
			Deploy          struct {
				Resources struct{ Limits struct{ Memory string } }
			}
			Volumes []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, "compose.yaml")), &compose))
	for _, name := range []string{"postgres", "postrider", "postrider-2"} {
		s := compose.Services[name]
		require.NotEmpty(t, s.Deploy.Resources.Limits.Memory, name)
		require.NotEmpty(t, s.StopGracePeriod, name)
		require.Equal(t, "unless-stopped", s.Restart, name)
	}
	require.Equal(t, []string{"data:/var/lib/postgresql/data"}, compose.Services["postgres"].Volumes)
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		require.NotContains(t, fmt.Sprint(compose.Services["postgres"].Command), setting)
	}
	named := regexp.MustCompile(`\$\{([A-Z_]+):\?`).FindAllStringSubmatch(fromRoot(t, "compose.yaml"), -1)
	require.NotEmpty(t, named)
	for _, name := range named {
		require.Contains(t, "\n"+fromRoot(t, ".env.example"), "\n"+name[1]+"=\n")
	}
}

// An empty variable, as compose passes it on, is none.
func TestEmptyVariablesAreNone(t *testing.T) {
	t.Parallel()
	db := migratedDatabase(t)
	n := startNodeWith(t, append(serveEnv(db), "POSTRIDER_ALLOW_CIDR=", "POSTRIDER_PUBLIC_URL="))
	r := postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Zero(t, r.code, r.stderr)
	n.stop()
	r = postrider(t, nil, "ready", "--listen", strings.TrimPrefix(n.api, "http://"))
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "not ready")
	require.Equal(t, 2, postrider(t, nil, "ready", "--listen", "nowhere").code)
}

func TestVersionSaysWhatWasBuilt(t *testing.T) {
	t.Parallel()
	require.Equal(t, "postrider 1.2.3 go1.26.1 linux/amd64, revision 0123 of 2026-11-22T09:00:00Z, with changes",
		build{Version: "1.2.3", Go: "go1.26.1", Platform: "linux/amd64", Revision: "0123", Time: "2026-11-22T09:00:00Z", Modified: true}.String())
	flag, verb := postrider(t, nil, "--version"), postrider(t, nil, "version")
	require.Zero(t, flag.code, flag.stderr)
	require.Equal(t, verb.stdout, flag.stdout)
	require.Contains(t, postrider(t, nil, "version", "-o", "json").stdout, `"platform":"`)
}

var execLine = regexp.MustCompile(`(?m)^Exec(?:Start|StartPre)=/usr/local/bin/postrider (.*)$`)

func TestSystemdUnitRunsWhatExists(t *testing.T) {
	t.Parallel()
	unit := fromRoot(t, "deploy/systemd/postrider.service")
	lines := execLine.FindAllStringSubmatch(unit, -1)
	require.Len(t, lines, 2)
	for _, line := range lines {
		_, err := newParser(t).Parse(strings.Fields(line[1]))
		require.NoError(t, err, line[0])
	}
	require.Subset(t, variables(t), variableName.FindAllString(unit, -1))
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here")
	}
	file := filepath.Join(t.TempDir(), "postrider.service")
	require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(unit, "/usr/local/bin/postrider", program)), 0o600))
	out, err := exec.Command(analyze, "verify", "--recursive-errors=no", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "postrider.service", "nothing in it is unknown")
}

// A release has what it says, and the linker's variable exists.
func TestReleaseIsMadeOfWhatExists(t *testing.T) {
	t.Parallel()
	var release struct {
		Version int
		Builds  []struct {
			Main         string
			Env          []string
			Goos, Goarch []string
			Ldflags      []string
		}
		Archives []struct{ Files []string }
		Checksum struct{ Algorithm string }
		Sboms    []any
	}
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, ".goreleaser.yaml")), &release))
	require.Equal(t, 2, release.Version)
	require.Len(t, release.Builds, 1)
	b := release.Builds[0]
	require.Contains(t, fromRoot(t, b.Main+"/version.go"), "\nvar release = \"\"\n")
	require.Contains(t, b.Ldflags[0], "-X main.release={{ .Version }}")
	require.Contains(t, fromRoot(t, "Dockerfile"), "-X main.release=${VERSION}")
	require.Equal(t, []string{"CGO_ENABLED=0"}, b.Env)
	require.Equal(t, [][]string{{"linux", "darwin"}, {"amd64", "arm64"}}, [][]string{b.Goos, b.Goarch})
	for _, pattern := range release.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join("..", "..", strings.ReplaceAll(pattern, "**/*", "*")))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
	}
	require.Equal(t, "sha256", release.Checksum.Algorithm)
	require.Len(t, release.Sboms, 1)
}

const chartFolder = "deploy/helm/postrider/"

// manifest is a Kubernetes object, as far as the tests look at it.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     map[string]any
}

// The functions of Helm that the chart uses.
func helmFunctions(root *template.Template) template.FuncMap {
	return template.FuncMap{
		"include": func(name string, data any) (string, error) {
			var out strings.Builder
			err := root.ExecuteTemplate(&out, name, data)
			return out.String(), err
		},
		"toYaml": func(v any) (string, error) {
			raw, err := yaml.Marshal(v)
			return strings.TrimSuffix(string(raw), "\n"), err
		},
		"nindent": func(n int, text string) string {
			indent := "\n" + strings.Repeat(" ", n)
			return indent + strings.ReplaceAll(text, "\n", indent)
		},
		"quote":      func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"contains":   func(part, text string) bool { return strings.Contains(text, part) },
		"trunc":      func(n int, text string) string { return text[:min(n, len(text))] },
		"trimSuffix": func(suffix, text string) string { return strings.TrimSuffix(text, suffix) },
		"add":        func(a, b int) int { return a + b },
		"default": func(other, v any) any {
			if truth, _ := template.IsTrue(v); truth {
				return v
			}
			return other
		},
		"required": func(message string, v any) (any, error) {
			if v == "" {
				return nil, errors.New(message)
			}
			return v, nil
		},
	}
}

// chart renders the templates as Helm does, by kind and name, with the values changed.
func chart(t *testing.T, change func(values map[string]any)) (map[string]manifest, error) {
	t.Helper()
	root := template.New("chart").Option("missingkey=error")
	root.Funcs(helmFunctions(root))
	files, err := filepath.Glob(filepath.Join("..", "..", chartFolder, "templates", "*"))
	require.NoError(t, err)
	template.Must(root.ParseFiles(files...))
	var about, values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, chartFolder+"Chart.yaml")), &about))
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, chartFolder+"values.yaml")), &values))
	change(values)
	data := map[string]any{
		"Values": values, "Release": map[string]any{"Name": "shop", "Namespace": "events", "Service": "Helm"},
		"Chart": map[string]any{"Name": about["name"], "Version": about["version"], "AppVersion": about["appVersion"]},
	}
	objects := map[string]manifest{}
	for _, file := range files {
		var out strings.Builder
		if err := root.ExecuteTemplate(&out, filepath.Base(file), data); err != nil {
			return nil, err
		}
		for decoder := yaml.NewDecoder(strings.NewReader(out.String())); filepath.Ext(file) == ".yaml"; {
			var m manifest
			if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else {
				require.NoError(t, err, out.String())
			}
			if m.Kind != "" {
				objects[m.Kind+" "+m.Metadata.Name] = m
			}
		}
	}
	return objects, nil
}

func enable(sections ...string) func(map[string]any) {
	return func(values map[string]any) {
		for _, section := range sections {
			values[section].(map[string]any)["enabled"] = true
		}
	}
}

// within follows a path of names and places into a manifest.
func within(t *testing.T, from any, path ...any) any {
	t.Helper()
	for _, step := range path {
		switch step := step.(type) {
		case string:
			from = from.(map[string]any)[step]
		case int:
			from = from.([]any)[step]
		}
		require.NotNil(t, from, path)
	}
	return from
}

func TestChartRenders(t *testing.T) {
	t.Parallel()
	few, err := chart(t, enable())
	require.NoError(t, err)
	names := slices.Sorted(maps.Keys(few))
	require.Equal(t, []string{"Deployment shop-postrider", "Job shop-postrider-migrate", "PodDisruptionBudget shop-postrider", "Service shop-postrider", "ServiceAccount shop-postrider"}, names)
	pod := within(t, few["Deployment shop-postrider"].Spec, "template", "spec")
	require.Equal(t, 40, within(t, pod, "terminationGracePeriodSeconds"))
	require.Equal(t, 2, within(t, few["Deployment shop-postrider"].Spec, "replicas"))
	container := within(t, pod, "containers", 0)
	require.Equal(t, "postrider:0.1.0", within(t, container, "image"))
	require.Equal(t, "postrider", within(t, container, "envFrom", 0, "secretRef", "name"))
	require.Equal(t, true, within(t, container, "securityContext", "readOnlyRootFilesystem"))
	for _, args := range []any{within(t, container, "args"), within(t, few["Job shop-postrider-migrate"].Spec, "template", "spec", "containers", 0, "args")} {
		var line []string
		for _, arg := range args.([]any) {
			line = append(line, arg.(string))
		}
		_, err := newParser(t).Parse(line)
		require.NoError(t, err, line)
	}

	all, err := chart(t, func(values map[string]any) {
		enable("ingress", "autoscaling", "serviceMonitor")(values)
		values["env"], values["args"] = map[string]any{"POSTRIDER_ALLOW_CIDR": "10.0.0.0/8"}, []any{"--pgbouncer"}
		for _, name := range []string{"nodeSelector", "podAnnotations", "affinity"} {
			values[name] = map[string]any{"a": "b"}
		}
		values["tolerations"], values["imagePullSecrets"] = []any{map[string]any{"key": "a"}}, []any{map[string]any{"name": "registry"}}
		values["ingress"].(map[string]any)["tlsSecret"] = "certificate"
	})
	require.NoError(t, err)
	require.Len(t, all, 8)
	require.NotContains(t, all["Deployment shop-postrider"].Spec, "replicas", "the autoscaler's to say")
	pod = within(t, all["Deployment shop-postrider"].Spec, "template", "spec")
	require.Equal(t, map[string]any{"name": "POSTRIDER_ALLOW_CIDR", "value": "10.0.0.0/8"}, within(t, pod, "containers", 0, "env", 1))
	require.Equal(t, "certificate", within(t, all["Ingress shop-postrider"].Spec, "tls", 0, "secretName"))
	require.Equal(t, "/metrics", within(t, all["ServiceMonitor shop-postrider"].Spec, "endpoints", 0, "path"))

	_, err = chart(t, func(values map[string]any) { values["existingSecret"] = "" })
	require.ErrorContains(t, err, "existingSecret")
	for _, file := range []string{"values.yaml", "templates/deployment.yaml", "templates/servicemonitor.yaml"} {
		require.Subset(t, variables(t), variableName.FindAllString(fromRoot(t, chartFolder+file), -1))
	}
}

func TestHelmAcceptsTheChart(t *testing.T) {
	t.Parallel()
	helm, err := exec.LookPath("helm")
	if err != nil {
		t.Skip("no helm here")
	}
	folder := filepath.Join("..", "..", chartFolder)
	for _, args := range [][]string{
		{"lint", "--strict", folder},
		{"template", "shop", folder},
		{"template", "shop", folder, "--set", "ingress.enabled=true,autoscaling.enabled=true,serviceMonitor.enabled=true,env.POSTRIDER_ALLOW_CIDR=10.0.0.0/8"},
	} {
		out, err := exec.Command(helm, args...).CombinedOutput()
		require.NoError(t, err, string(out))
	}
}
