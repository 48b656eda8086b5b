package web

import (
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/query"
)

// Options of the dashboard. Parts and API are required, and AdminToken unless Open.
type Options struct {
	// Parts is where the pages read from, and what their actions ask.
	Parts Parts
	// API is the REST API. Forms that change the configuration are clients of it, so that one place judges settings and
	// words what is wrong with them; a request made in a person's name has their store.Actor in its context. Required.
	API http.Handler
	// AdminToken makes the first admin, where nobody can sign in yet.
	AdminToken string
	// Open shows the pages to everybody who can connect: only for a server of one person on the loopback interface.
	// Requests must then name localhost or an IP address as their host.
	Open bool
	// Retention is what the storage page says about when days are dropped.
	Retention query.Retention
	// Stopping ends with the program: what streams goes on no longer. Default: never.
	Stopping context.Context //nolint:containedctx // it is the program's, and outlives each request
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// pages is the dashboard. Each of its handlers is named after its route and its template file.
type pages struct {
	parts     Parts
	api       http.Handler
	bootstrap *bootstrap
	codes     *wrongCodes
	log       *slog.Logger
	now       func() time.Time
	retention query.Retention
	stopping  context.Context    //nolint:containedctx // see Options
	templates *template.Template // the layout, the parts and a page for each of views
	files     map[string]*asset  // by their file's name
	assets    map[string]*asset  // by the name that they are served under
}

// Mount adds the dashboard's routes to e, all of them at /ui and below. It parses and tries every template first: an
// error means a mistake in the options or in this build, never a database that is away.
func Mount(e *echo.Echo, o Options) error {
	if o.Parts.DB == nil {
		return errors.New("web: Store is required")
	}
	if o.API == nil {
		return errors.New("web: API is required")
	}
	if o.AdminToken == "" && !o.Open {
		return errors.New("web: AdminToken is required unless Open")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Stopping == nil {
		o.Stopping = context.Background()
	}
	p := &pages{
		parts: o.Parts, api: o.API, bootstrap: newBootstrap(o.AdminToken), codes: newWrongCodes(), log: o.Logger,
		now: o.Parts.Clock.Now, retention: o.Retention, stopping: o.Stopping,
	}
	if err := p.load(); err != nil {
		return fmt.Errorf("web: %w", err)
	}
	p.mount(e, p.login(o.Open), o.Open)
	return nil
}

// Handler is the dashboard alone, for who does not serve the REST API beside it; see Mount.
func Handler(o Options) (http.Handler, error) {
	e := echo.New()
	e.IPExtractor = echo.ExtractIPDirect() // else echo believes an X-Forwarded-For that anybody may send
	return e, Mount(e, o)
}

func (p *pages) load() (err error) {
	if p.files, p.assets, err = loadAssets(); err != nil {
		return err
	}
	return p.parseTemplates()
}

// readMethods are the methods of a page. Echo answers HEAD only where it is told to.
var readMethods = []string{http.MethodGet, http.MethodHead}

// The files, the redirect and the sign-in page need no login.
func (p *pages) mount(e *echo.Echo, login echo.MiddlewareFunc, open bool) {
	ui := e.Group("/ui", secure, p.explain, bounded(maxForm))
	// First what is nobody's page, so that no answer below /ui leaves without the headers of secure; the routes that
	// follow replace these where they say more.
	ui.Any("", p.elsewhere, login)
	ui.Any("/*", p.elsewhere, login)
	ui.Match(readMethods, "", p.index)
	ui.Match(readMethods, "/static/:file", p.static)
	for path, page := range p.routes() {
		ui.Match(readMethods, path, page, login, requires(access.RoleViewer))
	}
	for path, page := range p.adminPages() {
		ui.Match(readMethods, path, page, login, requires(access.RoleAdmin))
	}
	for path, form := range p.forms() {
		ui.Match(readMethods, path, form.handle, login, requires(form.needs))
		ui.POST(path, form.handle, sameOrigin(), login, requires(form.needs))
	}
	for path, action := range p.actions() {
		ui.POST(path, action, sameOrigin(), login, requires(access.RoleOperator))
	}
	for path, action := range p.adminActions() {
		ui.POST(path, action, sameOrigin(), login, requires(access.RoleAdmin))
	}
	for path, action := range p.ownActions() {
		ui.POST(path, action, sameOrigin(), login)
	}
	if open {
		return // nobody signs in, and nobody is to be made who could
	}
	ui.Match(readMethods, "/sign-in", p.signInPage)
	for path, action := range p.strangersActions() {
		ui.POST(path, action, sameOrigin(), bounded(maxStrangersForm))
	}
}

// routes are the pages below /ui.
func (p *pages) routes() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{
		"/":                                   p.overview,
		"/problems":                           p.problems,
		"/tail":                               p.tail,
		"/tail/stream":                        p.tailStream,
		"/events":                             p.events,
		"/events/:id":                         p.event,
		"/deliveries":                         p.deliveries,
		"/deliveries/:id":                     p.delivery,
		"/batches":                            p.batches,
		"/batches/:id":                        p.batch,
		"/dead-letters":                       p.deadLetters,
		"/dead-letters/redeliver":             p.manyToRedeliver,
		"/dead-letters/purge":                 p.manyToPurge,
		"/dead-letters/:id":                   p.deadLetter,
		"/dead-letters/:id/purge":             p.purging,
		"/operations":                         p.operations,
		"/operations/:id":                     p.operation,
		"/topics":                             p.topics,
		"/topics/:topic":                      p.topic,
		"/subscriptions":                      p.subscriptions,
		"/subscriptions/:topic/:subscription": p.subscription,
		"/policies":                           p.policies,
		"/jobs":                               p.jobs,
		"/storage":                            p.storage,
		"/audit":                              p.audit,
		"/account":                            p.account,
		"/login":                              p.loginPage,
	}
}

// adminPages are pages about who else may come in.
func (p *pages) adminPages() map[string]echo.HandlerFunc {
	return map[string]echo.HandlerFunc{"/users": p.users, "/api-keys": p.apiKeys}
}

// contentSecurityPolicy lets a page load our own files and nothing else, and lets it ask and post to nobody but us.
// Should a template ever let a publisher's text through as markup, there is still no script in it that the browser
// would run and no address it would send anything to.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every answer. Pages show what publishers sent, so no cache on the way may keep them.
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

func (p *pages) index(c echo.Context) error {
	return c.Redirect(http.StatusMovedPermanently, "/ui/")
}

// elsewhere answers what no page answers.
func (p *pages) elsewhere(c echo.Context) error {
	switch c.Request().Method {
	case http.MethodGet, http.MethodHead:
		return echo.ErrNotFound
	default:
		c.Response().Header().Set(echo.HeaderAllow, "GET, HEAD")
		return echo.ErrMethodNotAllowed
	}
}
