// Package web is the dashboard under /ui/: pages rendered on the server, complete without JavaScript and refreshed with
// it. Pages read through package query. Actions call the same packages as the REST API; forms that change the
// configuration call the REST API itself. Texts of publishers and endpoints are escaped.
package web

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"postrider/internal/access"
	"postrider/internal/catalog"
	"postrider/internal/filter"
	"postrider/internal/operator"
	"postrider/internal/postgres"
	"postrider/internal/query"
	"postrider/internal/sqlquery"
	"postrider/policy"
	"postrider/web/display"
	"postrider/web/form"
	"postrider/web/site"
	"postrider/web/workbench"
)

// Parts are the dependencies of the dashboard. All are required.
type Parts struct {
	DB            *postgres.DB
	Clock         *postgres.Clock
	Cache         *catalog.Cache
	Topics        *catalog.Topics
	Subscriptions *catalog.Subscriptions
	Holds         *catalog.Holds
	Access        *access.Access
	Reader        *query.Reader
	Operator      *operator.Operator
	Queries       *sqlquery.Runner
	SavedQueries  *sqlquery.Store
}

// Options of the dashboard. Parts and API are required, and AdminToken unless Open.
type Options struct {
	Parts Parts
	// API is the REST API. Forms send their settings to it, so that one place validates them. The context of a request
	// has the user as its access.Actor.
	API http.Handler
	// AdminToken creates the first admin while no user exists.
	AdminToken string
	// Open serves the dashboard without sign-in, for a server on the loopback interface. Requests must then have
	// localhost or an IP address as host.
	Open bool
	// Retention is for the storage page.
	Retention query.Retention
	// Stopping ends streams when the program stops. Default: never.
	Stopping context.Context //nolint:containedctx // it outlives each request
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// static/LICENSES.txt has the sources and licenses of the vendored libraries.
//
//go:embed templates/*.html static
var files embed.FS

// pages is the dashboard. A template has the name of its handler, and its view has the name with View.
type pages struct {
	*site.Site
	Options
	// wrongTokens has the wrong admin tokens whose response is delayed.
	wrongTokens chan struct{}
	assets      site.Assets
}

// Mount adds the dashboard's routes below /ui to e. An error means invalid options or a broken build, never an
// unavailable database.
func Mount(e *echo.Echo, o Options) error {
	switch {
	case o.Parts.DB == nil, o.API == nil:
		return errors.New("web: Parts and API are required")
	case o.AdminToken == "" && !o.Open:
		return errors.New("web: AdminToken is required unless Open")
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.Stopping = cmp.Or(o.Stopping, context.Background())
	p := &pages{
		Site:    &site.Site{Now: o.Parts.Clock.Now, Log: o.Logger, Plain: plain, Done: doneTexts},
		Options: o, wrongTokens: make(chan struct{}, wrongTokensAtOnce),
	}
	if err := p.load(); err != nil {
		return fmt.Errorf("web: %w", err)
	}
	p.mount(e)
	return nil
}

// load reads the files of the dashboard. The templates are one set: a set for each page would need 12 MB.
func (p *pages) load() (err error) {
	if p.assets, err = site.LoadAssets(files, "static"); err != nil {
		return err
	}
	p.Templates, err = template.New("pages").Funcs(p.helpers()).ParseFS(files, "templates/*.html")
	if err != nil {
		return err
	}
	_, err = p.Templates.ParseFS(workbench.Templates, "templates/*.html")
	return err
}

// mount adds the routes. The files, the redirect and the sign-in page require no session.
func (p *pages) mount(e *echo.Echo) {
	login := site.Login(p.Parts.Access, p.Open)
	ui := e.Group("/ui", secure, p.Explain, storable, bounded(maxForm))
	// Other paths below /ui, so that every response has the headers of secure.
	ui.Any("", p.noPage, login)
	ui.Any("/*", p.noPage, login)
	ui.Match(site.ReadMethods, "", func(c echo.Context) error { return c.Redirect(http.StatusMovedPermanently, "/ui/") })
	ui.Match(site.ReadMethods, "/static/:file", p.assets.Serve)
	for path, show := range p.viewerPages() {
		ui.Match(site.ReadMethods, path, site.Timed(site.PageTime, show), login, site.Requires(access.RoleViewer))
	}
	ui.Match(site.ReadMethods, "/tail/stream", p.tailStream, login, site.Requires(access.RoleViewer))
	post := func(path string, action echo.HandlerFunc, rights ...echo.MiddlewareFunc) {
		ui.POST(path, storableForm(action), append([]echo.MiddlewareFunc{sameOrigin()}, rights...)...)
	}
	admin := site.Requires(access.RoleAdmin)
	ui.Match(site.ReadMethods, "/users", site.Timed(site.PageTime, p.users), login, admin)
	ui.Match(site.ReadMethods, "/api-keys", site.Timed(site.PageTime, p.apiKeys), login, admin)
	for path, form := range p.forms() {
		ui.Match(site.ReadMethods, path, site.Timed(formTime, form), login, admin)
		post(path, site.Timed(formTime, form), login, admin)
	}
	const sample = "/subscriptions/:topic/:subscription/test"
	ui.Match(site.ReadMethods, sample, func(c echo.Context) error { // reload of a rejection
		return c.Redirect(http.StatusSeeOther, subscriptionPath(c.Param("topic"), c.Param("subscription")))
	}, login, site.Requires(access.RoleOperator))
	for role, actions := range p.actions() {
		for path, action := range actions {
			post(path, action, login, site.Requires(role))
		}
	}
	workbench.New(workbench.Parts{
		Site: p.Site, DB: p.Parts.DB, Reader: p.Parts.Reader, Operator: p.Parts.Operator, Queries: p.Parts.Queries,
		SavedQueries: p.Parts.SavedQueries,
	}).Mount(ui, post, login)
	if p.Open {
		return // no sign-in, and no first admin
	}
	ui.Match(site.ReadMethods, "/sign-in", site.Timed(site.PageTime, p.signInPage))
	for path, action := range map[string]echo.HandlerFunc{
		"/sign-in":     site.Act(p.signIn, p.signInPage),
		"/first-admin": site.Act(p.firstAdmin, p.signInPage),
		"/sign-out":    site.Act(p.signOut, p.signInPage),
	} {
		post(path, action, bounded(maxPublicForm))
	}
}

// viewerPages are the pages for every role.
func (p *pages) viewerPages() map[string]site.Page {
	return map[string]site.Page{
		"/":                                   p.overview,
		"/problems":                           p.problems,
		"/problems/:id":                       withID(uuidParam, p.problem),
		"/tail":                               p.tail,
		"/events":                             p.events,
		"/events/:id":                         withID(uuidParam, p.event),
		"/deliveries":                         p.deliveries,
		"/deliveries/:id":                     withID(numberParam, p.delivery),
		"/batches":                            p.batches,
		"/batches/:id":                        withID(numberParam, p.batch),
		"/dead-letters":                       p.deadLetters,
		"/dead-letters/redeliver":             p.many(operator.Redeliver),
		"/dead-letters/repair":                p.many(operator.Repair),
		"/dead-letters/resolve":               p.many(operator.Resolve),
		"/dead-letters/purge":                 p.many(operator.Purge),
		"/deliveries/retry":                   p.many(operator.Retry),
		"/deliveries/cancel":                  p.many(operator.Cancel),
		"/dead-letters/:id":                   withID(uuidParam, p.deadLetter),
		"/dead-letters/:id/purge":             withID(uuidParam, p.purging),
		"/events/:id/redeliver":               withID(uuidParam, p.redelivering),
		"/operations":                         p.operations,
		"/operations/:id":                     withID(uuidParam, p.operation),
		"/topics":                             p.topics,
		"/topics/:topic":                      p.topic,
		"/subscriptions":                      p.subscriptions,
		"/subscriptions/:topic/:subscription": p.subscription,
		"/policies":                           p.policies,
		"/jobs":                               p.jobs,
		"/storage":                            p.storage,
		"/audit":                              p.audit,
		"/search":                             p.search,
		"/account":                            p.account,
	}
}

// contentSecurityPolicy limits files and requests of a page to this server. It is a second protection if a template
// ever writes a publisher's text as markup.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every response. Caches must not store pages, which show events.
func secure(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		header := c.Response().Header()
		header.Set(echo.HeaderContentSecurityPolicy, contentSecurityPolicy)
		header.Set(echo.HeaderXContentTypeOptions, "nosniff")
		header.Set(echo.HeaderReferrerPolicy, "no-referrer")
		header.Set(echo.HeaderCacheControl, "no-store")
		return next(c)
	}
}

// plainPages are not compressed: they may show a secret that was requested or typed, beside a text of the request.
var plainPages = []string{
	"/ui/account", "/ui/api-keys", "/ui/users", "/ui/sign-in", "/ui/sign-out", "/ui/first-admin", "/ui/topics/:topic/",
	"/ui/new-topic", "/ui/subscriptions/:topic/:subscription/", "/ui/subscriptions/new", "/ui/policies/new",
	"/ui/policies/:name/",
}

func plain(c echo.Context) bool {
	return slices.ContainsFunc(plainPages, func(prefix string) bool { return strings.HasPrefix(c.Path(), prefix) })
}

// storable rejects an address with a name or a value that PostgreSQL cannot hold. No object has such a name.
func storable(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if !filter.Storable(strings.Join(c.ParamValues(), "")) {
			return echo.ErrNotFound
		}
		query, err := url.ParseQuery(c.Request().URL.RawQuery)
		return checked(c, next, query, err)
	}
}

// storableForm reads a form, and rejects one with a name or a value that PostgreSQL cannot hold.
func storableForm(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		err := r.ParseForm()
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return echo.NewHTTPError(http.StatusRequestEntityTooLarge)
		}
		return checked(c, next, r.PostForm, err)
	}
}

// checked calls the handler if PostgreSQL can hold the values of an address or a form; err is that of reading them.
func checked(c echo.Context, next echo.HandlerFunc, all url.Values, err error) error {
	if err != nil { // what it was meant to be would be missing
		return &site.RejectionError{Status: http.StatusBadRequest, Text: "The parameters are not encoded as in a form."}
	}
	for name, values := range all {
		if !filter.Storable(name + strings.Join(values, "")) {
			return &site.RejectionError{
				Status: http.StatusBadRequest, Text: strconv.Quote(name) + " must be UTF-8 without the character 0.",
			}
		}
	}
	return next(c)
}

// noPage responds to unknown paths and methods.
func (p *pages) noPage(c echo.Context) error {
	switch c.Request().Method {
	case http.MethodGet, http.MethodHead:
		return echo.ErrNotFound
	default:
		c.Response().Header().Set(echo.HeaderAllow, "GET, HEAD")
		return echo.ErrMethodNotAllowed
	}
}

// numberParam is the id in the path; ErrNotFound if it is invalid.
func numberParam(c echo.Context) (int64, error) {
	id, err := strconv.ParseInt(c.Param("id"), 10, 64)
	if err != nil || id <= 0 {
		return 0, postgres.ErrNotFound
	}
	return id, nil
}

// uuidParam is the id in the path; ErrNotFound if it is invalid.
func uuidParam(c echo.Context) (uuid.UUID, error) {
	id, err := uuid.Parse(c.Param("id"))
	if err != nil {
		return id, postgres.ErrNotFound
	}
	return id, nil
}

// withID is a page of an object whose id is in the path.
func withID[ID any](
	param func(echo.Context) (ID, error), show func(ctx context.Context, c echo.Context, id ID) error,
) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		id, err := param(c)
		if err != nil {
			return err
		}
		return show(ctx, c, id)
	}
}

// actOn is site.Act for an action and a page of an object whose id is in the path.
func actOn[ID any](
	param func(echo.Context) (ID, error), do func(ctx context.Context, c echo.Context, id ID) (href string, err error),
	show func(ctx context.Context, c echo.Context, id ID) error,
) echo.HandlerFunc {
	return site.Timed(site.PageTime, withID(param, func(ctx context.Context, c echo.Context, id ID) error {
		href, err := do(ctx, c, id)
		return site.Finish(c, href, err, func() error { return show(ctx, c, id) })
	}))
}

// owner reads the filter fields of an event subscription and its topic.
func owner(f *display.Filter) (topic, subscription string) {
	return f.Name("Topic", "topic", "topic = ?"), f.Name("Event subscription", "subscription", "subscription = ?")
}

// helpers are the functions of the templates.
func (p *pages) helpers() template.FuncMap {
	return template.FuncMap{
		"asset":     p.assets.Path,
		"grid":      p.Grid,
		"table":     display.DefaultTable,
		"moment":    func(t time.Time) display.Moment { return display.MomentOf(t, p.Now()) },
		"age":       func(t time.Time) string { return display.Span(max(0, p.Now().Sub(t))) },
		"left":      func(t time.Time) string { return display.Span(max(0, t.Sub(p.Now()))) },
		"text":      display.Visible,
		"json":      func(j *query.JSON) string { return string(*j) },
		"pretty":    func(text string) string { return display.Pretty(display.Visible(text)) },
		"highlight": display.Highlight,
		"headers":   display.Headers,
		"n":         display.Grouped,
		"atMost":    display.AtMost,
		"plural":    display.Plural,
		"percent":   display.Percent,
		"succeeded": func(all, failed int64) string { return display.Percent(all-failed, all) },
		"width":     func(part, whole int64) int { return int(100 * part / max(1, whole)) },
		"perSecond": display.PerSecond,
		"ms":        display.Milliseconds,
		"seconds":   func(seconds float64) string { return display.Milliseconds(1000 * seconds) },
		"size":      display.Size,
		"span":      display.Span,
		"minutes":   func(n int) string { return display.Span(time.Duration(n) * time.Minute) },
		"after":     func(seconds float64) string { return display.Span(duration(seconds)) },
		"clockAfter": func(seconds float64) string {
			return p.Now().Add(duration(seconds)).UTC().
				Format(time.DateTime)
		},
		"status":           display.StatusText,
		"met":              display.ResponseText,
		"sentence":         func(reason string) string { return policy.Reason(reason).Sentence() },
		"allowed":          display.AttemptsAllowed,
		"tone":             display.Tone,
		"provisioning":     display.Provisioning,
		"spark":            display.SparkOf,
		"sparkFailed":      display.FailedSparkOf,
		"hours":            func(n int) time.Duration { return time.Duration(n) * time.Hour },
		"longest":          display.Longest,
		"phases":           display.PhasesOf,
		"waited":           display.Waited,
		"verdict":          display.VerdictText,
		"progress":         func(o query.Operation) display.Progress { return display.ProgressOf(o, p.Now()) },
		"operationKind":    func(kind string) string { return cmp.Or(operationKinds[kind], kind) },
		"facts":            display.FactsOf,
		"export":           display.ExportOf,
		"shell":            display.QuoteShell,
		"day":              func(t time.Time) string { return t.Format(time.DateOnly) },
		"subscriptionPath": subscriptionPath,
		"foundPath":        foundPath,
		"userPath":         userPath,
		"apiKeyPath":       apiKeyPath,
		"lower":            strings.ToLower,
		"target":           p.target,
		"attributesLabel":  form.AttributesLabel,
		"add1":             func(n int) int { return n + 1 },
	}
}

// duration is a number of seconds as a duration.
func duration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// formTime is the time limit of a form. A save waits up to 15 s for the handshake with an endpoint, and repeats it if
// the event subscription was changed meanwhile. The server limits a response to a minute.
const formTime = 45 * time.Second

// forms are the admins' forms, which change the configuration, show keys and publish. GET shows a form, POST handles
// its buttons. All use the REST API, see request.
func (p *pages) forms() map[string]site.Page {
	const topic, subscription = "/topics/:topic/", "/subscriptions/:topic/:subscription/"
	return map[string]site.Page{
		"/new-topic":             p.edit(p.openTopic),
		topic + "edit":           p.edit(p.openTopic),
		topic + "delete":         p.remove(p.openTopic),
		topic + "keys":           p.topicKeys,
		topic + "publish":        p.publish,
		"/subscriptions/new":     p.newSubscription,
		subscription + "edit":    p.edit(p.openSubscription),
		subscription + "delete":  p.remove(p.openSubscription),
		"/policies/new":          p.edit(p.openPolicy),
		"/policies/:name/edit":   p.edit(p.openPolicy),
		"/policies/:name/delete": p.remove(p.openPolicy),
	}
}
