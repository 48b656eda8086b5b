package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"postrider/internal/cli/rest"
)

// readers is what those who type the pages have: `postrider dev`, and a service as in production on another database of
// the same server, whose endpoints have public names.
type readers struct {
	dev      *devRun
	node     *nodeProcess
	internet internet
	pages    *database // the node's
}

func newReaders(t *testing.T) *readers {
	t.Helper()
	r := &readers{dev: startDev(t), internet: startInternet(t)}
	r.dev.db.exec("CREATE DATABASE pages")
	r.pages = openDatabaseAt(t, r.urlOf(t, "pages"))
	r.pages.migrate()
	r.pages.pool.Reset() // a template has no sessions
	r.dev.db.exec("CREATE DATABASE pages_own TEMPLATE pages")
	r.node = startNodeWith(t, append(serveEnv(r.pages), r.internet.env()...))
	return r
}

// urlOf is the URL of a database beside dev's own.
func (r *readers) urlOf(t *testing.T, name string) string {
	t.Helper()
	u, err := url.Parse(r.dev.info.DatabaseURL)
	require.NoError(t, err)
	u.Path = "/" + name
	return u.String()
}

// environment is what the reader of a page has set. Who reads of dev's well-known token has what dev printed.
func (r *readers) environment(t *testing.T, page, dir string) []string {
	t.Helper()
	api, token, db, key := r.node.api, testAdminToken, r.pages.url, testEncryptionKey
	if strings.Contains(page, rest.DevAdminToken) {
		api, token, db, key = r.dev.info.API, r.dev.info.AdminToken, r.dev.info.DatabaseURL, ""
	}
	binaries := one[string](r.dev.db, "SELECT setting FROM pg_config WHERE name = 'BINDIR'")
	env := slices.DeleteFunc(ownEnvironment(), func(pair string) bool {
		return strings.HasPrefix(pair, "PATH=") ||
			strings.HasPrefix(pair, "HOME=")
	})
	env = append(env, r.internet.env()...)
	return append(env,
		"HOME="+dir, "PATH="+filepath.Join(dir, "bin")+":"+binaries+":"+os.Getenv("PATH"), "PROGRAM="+program, "PWD="+dir,
		"POSTRIDER_URL="+api, "SINK="+r.dev.info.Sink, "POSTRIDER_ADMIN_TOKEN="+token, "POSTRIDER_API_KEY="+token,
		"POSTRIDER_DATABASE_URL="+db, "POSTRIDER_ENCRYPTION_KEY="+key, "POSTRIDER_LISTEN=127.0.0.1:"+freePort(t),
		"POSTRIDER_SINK_LISTEN=127.0.0.1:0", "POSTRIDER_ALLOW_CIDR=127.0.0.0/8",
		"DEV_DATABASE_URL="+r.dev.info.DatabaseURL)
}

// The commands of a page work in the order of the page. Two readers share the pages.
func TestPagesThatAreTyped(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bash", "curl", "jq", "openssl"} {
		tool(t, name, name)
	}
	before, err := os.ReadFile("testdata/docsrun.sh")
	require.NoError(t, err)
	pages := slices.DeleteFunc(documentPages(t), func(name string) bool {
		return name == movePage || pageScript(name, fromRoot(t, name), "") == "" // that one is typed during publishing
	})
	for reader, names := range [][]string{pages[:len(pages)/2], pages[len(pages)/2:]} {
		t.Run(fmt.Sprint(reader), func(t *testing.T) {
			t.Parallel()
			r := newReaders(t)
			for _, name := range names { // one after the other: the pages call their topics alike
				t.Run(strings.TrimSuffix(name, ".md"), func(t *testing.T) {
					r.typePage(t, name, string(before))
					r.forget(t)
				})
			}
		})
	}
}

func (r *readers) typePage(t *testing.T, name, before string) {
	t.Helper()
	dir := pageFolder(t)
	page := fromRoot(t, name)
	text := pageScript(name, page, dir)
	if name == "README.md" {
		text += text // its commands can be repeated: readers try the first page more than once
	}
	env := r.environment(t, page, dir)
	if strings.Contains(text, "OWN_DATABASE_URL") {
		env = append(env, "OWN_DATABASE_URL="+r.ownDatabase(t, name))
	}
	typeScript(t, name, env, dir, before+text)
}

// typeScript types the commands of a page in its folder.
func typeScript(t *testing.T, name string, env []string, dir, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "page.sh"), []byte(text), 0o600))
	began := time.Now()
	p := startProcess(t, env, "bash", "-c", "cd "+dir+" && exec bash page.sh")
	select {
	case <-p.done:
	case <-time.After(4 * patience):
		require.FailNow(t, "the page does not come to its end", "%s\n%s", p.stdout.String(), p.stderr.String())
	}
	require.Zero(t, p.cmd.ProcessState.ExitCode(), p.stderr.String()) // the process prints the rest
	require.NotEmpty(t, p.stdout.String())
	t.Logf("%s was typed in %s", name, time.Since(began).Round(time.Millisecond))
}

// ownDatabase is an empty one with the schema.
func (r *readers) ownDatabase(t *testing.T, page string) string {
	t.Helper()
	name := "own_" + strings.NewReplacer("/", "_", ".md", "").Replace(strings.ToLower(page))
	r.dev.db.exec(fmt.Sprintf("CREATE DATABASE %q TEMPLATE pages_own", name))
	return r.urlOf(t, name)
}

// forget deletes what a page has made, for the next one.
func (r *readers) forget(t *testing.T) {
	t.Helper()
	for _, topic := range r.named(t, "/v1/topics") {
		for _, subscription := range r.named(t, "/v1/topics/"+topic+"/subscriptions") {
			r.node.manage(http.StatusNoContent, http.MethodDelete, "/v1/topics/"+topic+"/subscriptions/"+subscription, "")
		}
		if topic != "postrider.system" {
			r.node.manage(http.StatusNoContent, http.MethodDelete, "/v1/topics/"+topic, "")
		}
	}
	r.pages.exec("DELETE FROM postrider_internal.dead_letters") // they outlive their topic
	r.pages.exec("DROP TABLE IF EXISTS public.orders")          // an application's own
	for _, policy := range r.named(t, "/v1/policies") {
		r.node.manage(http.StatusNoContent, http.MethodDelete, "/v1/policies/"+policy, "")
	}
}

// named are the names in a list of the API, without what is built in.
func (r *readers) named(t *testing.T, path string) (names []string) {
	t.Helper()
	var all struct {
		Value []struct {
			Name    string
			BuiltIn bool
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.node.manage(http.StatusOK, http.MethodGet, path, "")), &all))
	for _, one := range all.Value {
		if !one.BuiltIn {
			names = append(names, one.Name)
		}
	}
	return names
}
