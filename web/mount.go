// Package web is the dashboard under /ui/: pages that are rendered on the server, complete without JavaScript and
// refreshed with it. Pages read through package query. Actions call the same packages as the REST API, and forms that
// change the configuration call the REST API itself. Texts of publishers and endpoints are shown as text only.
package web

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/catalog"
	"postrider/operator"
	"postrider/postgres"
	"postrider/query"
	"postrider/web/site"
)

// Parts are what the dashboard works with. All are required.
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
}

// Options of the dashboard. Parts and API are required, and AdminToken unless Open.
type Options struct {
	Parts Parts
	// API is the REST API. Forms that change the configuration are its clients, so that settings are validated in one
	// place. The context of a request has the user as its access.Actor.
	API http.Handler
	// AdminToken creates the first admin while no user exists.
	AdminToken string
	// Open serves the dashboard without a login: only for a server on the loopback interface. Requests must then have
	// localhost or an IP address as their host.
	Open bool
	// Retention is shown by the storage page.
	Retention query.Retention
	// Stopping ends streams when the program stops. Default: never.
	Stopping context.Context //nolint:containedctx // it is the program's, and outlives each request
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// The libraries are vendored as they were published; static/LICENSES.txt has their sources and licenses.
//
//go:embed templates/*.html static
var files embed.FS

// pages is the dashboard. Its handlers have the names of their templates.
type pages struct {
	*site.Site
	parts     Parts
	api       http.Handler
	bootstrap *bootstrap
	codes     *wrongCodes
	retention query.Retention
	stopping  context.Context //nolint:containedctx // see Options
	assets    site.Assets
}

// Mount adds the dashboard's routes to e, all of them at /ui and below. An error is a mistake in the options or in this
// build, never an unavailable database.
func Mount(e *echo.Echo, o Options) error {
	switch {
	case o.Parts.DB == nil, o.API == nil:
		return errors.New("web: Parts and API are required")
	case o.AdminToken == "" && !o.Open:
		return errors.New("web: AdminToken is required unless Open")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Stopping == nil {
		o.Stopping = context.Background()
	}
	p := &pages{
		Site:  &site.Site{Now: o.Parts.Clock.Now, Log: o.Logger, Done: doneText},
		parts: o.Parts, api: o.API, bootstrap: newBootstrap(o.AdminToken), codes: newWrongCodes(),
		retention: o.Retention, stopping: o.Stopping,
	}
	if err := p.load(); err != nil {
		return fmt.Errorf("web: %w", err)
	}
	p.mount(e, o.Open)
	return nil
}

// load reads the files of the dashboard. The templates are one set, which shares the parts: a set for each page would
// need 12 MB.
func (p *pages) load() (err error) {
	if p.assets, err = site.LoadAssets(files, "static"); err != nil {
		return err
	}
	p.Templates, err = template.New("pages").Funcs(p.helpers()).ParseFS(files, "templates/*.html")
	return err
}

// readMethods are the methods of a page. Echo serves HEAD only if it is named.
var readMethods = []string{http.MethodGet, http.MethodHead}

// mount adds all routes. The files, the redirect and the sign-in page need no login.
func (p *pages) mount(e *echo.Echo, open bool) {
	login := site.Login(p.parts.Access, open)
	ui := e.Group("/ui", secure, p.Explain, bounded(maxForm))
	// Every other path below /ui, so that no response lacks the headers of secure.
	ui.Any("", p.elsewhere, login)
	ui.Any("/*", p.elsewhere, login)
	ui.Match(readMethods, "", func(c echo.Context) error { return c.Redirect(http.StatusMovedPermanently, "/ui/") })
	ui.Match(readMethods, "/static/:file", p.assets.Serve)
	for path, show := range p.viewerPages() {
		ui.Match(readMethods, path, site.Timed(show), login, site.Requires(access.RoleViewer))
	}
	ui.Match(readMethods, "/tail/stream", p.tailStream, login, site.Requires(access.RoleViewer))
	ui.Match(readMethods, "/users", site.Timed(p.users), login, site.Requires(access.RoleAdmin))
	ui.Match(readMethods, "/api-keys", site.Timed(p.apiKeys), login, site.Requires(access.RoleAdmin))
	for path, form := range p.forms() {
		ui.Match(readMethods, path, form.handle, login, site.Requires(form.needs))
		ui.POST(path, form.handle, sameOrigin(), login, site.Requires(form.needs))
	}
	for role, actions := range p.actions() {
		for path, action := range actions {
			ui.POST(path, action, sameOrigin(), login, site.Requires(role))
		}
	}
	if open {
		return // no user signs in, and none is to be created
	}
	ui.Match(readMethods, "/sign-in", site.Timed(p.signInPage))
	for path, action := range p.signInActions() {
		ui.POST(path, action, sameOrigin(), bounded(maxStrangersForm))
	}
}

// viewerPages are the pages that every role may see.
func (p *pages) viewerPages() map[string]site.Page {
	return map[string]site.Page{
		"/":                                   p.overview,
		"/problems":                           p.problems,
		"/tail":                               p.tail,
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

// contentSecurityPolicy lets a page load only our own files and send requests only to us. If a template ever wrote a
// publisher's text as markup, the browser would still run no script in it.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every response. Pages show events, so no cache may store them.
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

// elsewhere responds for paths and methods that no page has.
func (p *pages) elsewhere(c echo.Context) error {
	switch c.Request().Method {
	case http.MethodGet, http.MethodHead:
		return echo.ErrNotFound
	default:
		c.Response().Header().Set(echo.HeaderAllow, "GET, HEAD")
		return echo.ErrMethodNotAllowed
	}
}
