package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const chartFolder = "deploy/helm/postrider/"

// manifest is the tested part of a Kubernetes object.
type manifest struct {
	Kind     string
	Metadata struct{ Name string }
	Spec     map[string]any
}

// everyValue sets each value that puts something into the manifests.
const everyValue = `
existingSecret: mine
database: {secret: events-app}
env: {POSTRIDER_ALLOW_CIDR: 10.0.0.0/8, POSTRIDER_PGBOUNCER: "true"}
extraEnv:
  - name: POSTRIDER_PREVIOUS_ENCRYPTION_KEYS
    valueFrom: {secretKeyRef: {name: old, key: keys}}
args: ["--log-attempts=all"]
tls: {secret: inner}
ingress: {enabled: true, className: nginx, tlsSecret: certificate, annotations: ` +
	`{nginx.ingress.kubernetes.io/backend-protocol: HTTPS}}
autoscaling: {enabled: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}, token: {secret: viewer, key: token}, tlsConfig: ` +
	`{insecureSkipVerify: true}}
extraVolumes: [{name: ca, configMap: {name: authority}}]
extraVolumeMounts: [{name: ca, mountPath: /etc/ca, readOnly: true}]
podAnnotations: {a: b}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: spot, operator: Exists}]
affinity: {nodeAffinity: {}}
imagePullSecrets: [{name: registry}]
migrate: {existingSecret: administrator}
`

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
		"lower":      strings.ToLower,
		"trim":       strings.TrimSpace,
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

// override sets values as Helm does: those of a section one by one.
func override(values, with map[string]any) {
	for name, v := range with {
		section, of := values[name].(map[string]any)
		changed, is := v.(map[string]any)
		if of && is {
			override(section, changed)
		} else {
			values[name] = v
		}
	}
}

// chart renders the templates as Helm does, by kind and name, with the values changed.
func chart(t *testing.T, changed string) (map[string]manifest, error) {
	t.Helper()
	root := template.New("chart").Option("missingkey=error")
	root.Funcs(helmFunctions(root))
	files, err := filepath.Glob(filepath.Join("..", "..", chartFolder, "templates", "*"))
	require.NoError(t, err)
	template.Must(root.ParseFiles(files...))
	var about, values, with map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, chartFolder+"Chart.yaml")), &about))
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, chartFolder+"values.yaml")), &values))
	require.NoError(t, yaml.Unmarshal([]byte(changed), &with))
	override(values, with)
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
		if filepath.Ext(file) == ".yaml" {
			maps.Copy(objects, manifestsOf(t, out.String()))
		}
	}
	return objects, nil
}

// manifestsOf reads a stream of manifests, by kind and name.
func manifestsOf(t *testing.T, text string) map[string]manifest {
	t.Helper()
	objects := map[string]manifest{}
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m manifest
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return objects
		}
		require.NoError(t, err, text)
		if m.Kind != "" {
			objects[m.Kind+" "+m.Metadata.Name] = m
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

func rendered(t *testing.T, values string) map[string]manifest {
	t.Helper()
	objects, err := chart(t, values)
	require.NoError(t, err)
	return objects
}

func podOf(t *testing.T, objects map[string]manifest, owner string) any {
	t.Helper()
	return within(t, objects[owner].Spec, "template", "spec")
}

const deployment, migration = "Deployment shop-postrider", "Job shop-postrider-migrate"

func TestChartRenders(t *testing.T) {
	t.Parallel()
	objects := rendered(t, "{}")
	require.Equal(t,
		[]string{deployment, migration, "PodDisruptionBudget shop-postrider", "Service shop-postrider", "ServiceAccount " +
			"shop-postrider"}, slices.Sorted(maps.Keys(objects)))
	pod := podOf(t, objects, deployment)
	require.Equal(t, 40, within(t, pod, "terminationGracePeriodSeconds"))
	require.Equal(t, 2, within(t, objects[deployment].Spec, "replicas"))
	container := within(t, pod, "containers", 0)
	require.Equal(t, "postrider:0.1.0", within(t, container, "image"))
	require.Equal(t, "postrider", within(t, container, "envFrom", 0, "secretRef", "name"))
	require.Equal(t, true, within(t, container, "securityContext", "readOnlyRootFilesystem"))
	require.Equal(t, "HTTP", within(t, container, "readinessProbe", "httpGet", "scheme"))
	for _, args := range []any{within(t, container, "args"), within(t, podOf(t, objects, migration), "containers", 0,
		"args")} {
		var line []string
		for _, arg := range args.([]any) {
			line = append(line, arg.(string))
		}
		_, err := newParser(t).Parse(line)
		require.NoError(t, err, line)
	}
	for _, file := range []string{
		"values.yaml", "templates/deployment.yaml", "templates/servicemonitor.yaml", "templates/_helpers.tpl",
	} {
		require.Subset(t, variables(t), variableName.FindAllString(fromRoot(t, chartFolder+file), -1))
	}
}

func TestChartRendersWhatIsSwitchedOn(t *testing.T) {
	t.Parallel()
	objects := rendered(t, everyValue)
	require.Len(t, objects, 8)
	require.NotContains(t, objects[deployment].Spec, "replicas", "the autoscaler's to say")
	require.Equal(t, "certificate", within(t, objects["Ingress shop-postrider"].Spec, "tls", 0, "secretName"))
	scrape := within(t, objects["ServiceMonitor shop-postrider"].Spec, "endpoints", 0)
	require.Equal(t, "https", within(t, scrape, "scheme"))
	require.Equal(t, map[string]any{"name": "viewer", "key": "token"}, within(t, scrape, "authorization", "credentials"))

	pod := podOf(t, objects, deployment)
	require.Equal(t, "HTTPS", within(t, pod, "containers", 0, "livenessProbe", "httpGet", "scheme"))
	require.Equal(t, "inner", within(t, pod, "volumes", 0, "secret", "secretName"))
	own := environmentOf(t, pod)
	require.Equal(t, "/etc/postrider/tls/tls.crt", own["POSTRIDER_TLS_CERT"]["value"])
	migrates := podOf(t, objects, migration)
	require.Equal(t, "ca", within(t, migrates, "volumes", 0, "name"), "the database's certificate is checked with it, too")
	require.Equal(t, "administrator", within(t, migrates, "containers", 0, "envFrom", 1, "secretRef", "name"))
	require.Len(t, within(t, pod, "containers", 0, "envFrom"), 1, "the nodes do not get it")
	for _, env := range []map[string]map[string]any{own, environmentOf(t, migrates)} {
		require.Equal(t, "10.0.0.0/8", env["POSTRIDER_ALLOW_CIDR"]["value"])
		require.Equal(t, "true", env["POSTRIDER_PGBOUNCER"]["value"])
		require.Equal(t, map[string]any{"name": "events-app", "key": "uri"},
			within(t, env["POSTRIDER_DATABASE_URL"], "valueFrom", "secretKeyRef"))
		require.Equal(t, "old", within(t, env["POSTRIDER_PREVIOUS_ENCRYPTION_KEYS"], "valueFrom", "secretKeyRef", "name"))
	}

	_, err := chart(t, `existingSecret: ""`)
	require.ErrorContains(t, err, "existingSecret")
	require.Equal(t, []string{deployment, "Service shop-postrider", "ServiceAccount shop-postrider"},
		slices.Sorted(maps.Keys(rendered(t,
			"{migrate: {enabled: false}, podDisruptionBudget: {enabled: false}, replicaCount: 1, image: {tag: 1.2.3}}"))))
}

// environmentOf is that of a pod's container, by name.
func environmentOf(t *testing.T, pod any) map[string]map[string]any {
	t.Helper()
	env := map[string]map[string]any{}
	for _, v := range within(t, pod, "containers", 0, "env").([]any) {
		variable := v.(map[string]any)
		env[variable["name"].(string)] = variable
	}
	return env
}

// The schema rejects misspelled values, so it must have all values.
func TestChartSchemaKnowsEachValue(t *testing.T) {
	t.Parallel()
	var schema, values map[string]any
	require.NoError(t, json.Unmarshal([]byte(fromRoot(t, chartFolder+"values.schema.json")), &schema))
	require.NoError(t, yaml.Unmarshal([]byte(fromRoot(t, chartFolder+"values.yaml")), &values))
	values["global"] = nil // Helm's own
	requireSameNames(t, "values.yaml", schema, values)
}

func requireSameNames(t *testing.T, where string, schema, values map[string]any) {
	t.Helper()
	known, closed := schema["properties"].(map[string]any)
	if !closed {
		return
	}
	require.Equal(t, false, schema["additionalProperties"], where)
	require.ElementsMatch(t, slices.Collect(maps.Keys(known)), slices.Collect(maps.Keys(values)), where)
	for name, v := range values {
		if section, is := v.(map[string]any); is {
			requireSameNames(t, where+" "+name, known[name].(map[string]any), section)
		}
	}
}
