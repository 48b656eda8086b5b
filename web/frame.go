package web

import (
	"html/template"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
)

// frame is what layout.html shows around a page.
type frame struct {
	Title string
	// Section is the address of the list that the page belongs to: its link in the menu is marked.
	Section string
	// Here is the page's own address, with its filters.
	Here string
	// Live pages ask for themselves again every few seconds.
	Live bool
	// Trail leads from the section to the page.
	Trail []link
	// Done is what the action that led here has done; "" = there was none.
	Done string
	// Refused is why the action that was asked for here was not done; "" = it was.
	Refused string
	At      time.Time
	// Role is that of whoever looks; "" = nobody has signed in.
	Role access.Role
	// Who has signed in; "" where nobody has to.
	Who  string
	Menu []menuGroup
	View any
	// Main is View as its page's template shows it: what the layout goes around.
	Main template.HTML
}

type link struct{ Href, Text string }

type menuGroup struct {
	Name  string
	Links []link
}

// menu is in the order in which a person on call asks: what is wrong, what became of it, how it is set up.
var menu = []menuGroup{
	{"Now", []link{{"/ui/", "Overview"}, {"/ui/problems", "Problems"}, {"/ui/tail", "Live tail"}}},
	{
		"Traffic",
		[]link{
			{"/ui/events", "Events"},
			{"/ui/deliveries", "Deliveries"},
			{"/ui/batches", "Batches"},
			{"/ui/dead-letters", "Dead letters"},
			{"/ui/operations", "Operations"},
		},
	},
	{"Configuration", []link{
		{"/ui/topics", "Topics"}, {"/ui/subscriptions", "Event subscriptions"}, {"/ui/policies", "Retry policies"},
	}},
	{"System", []link{{"/ui/jobs", "Jobs"}, {"/ui/storage", "Storage"}, {"/ui/audit", "Audit"}, {"/openapi", "REST API"}}},
}

// accessMenu is the admins'.
var accessMenu = menuGroup{"Access", []link{{"/ui/users", "Users"}, {"/ui/api-keys", "API keys"}}}

func menuFor(role access.Role) []menuGroup {
	switch {
	case role == "":
		return nil
	case role.Allows(access.RoleAdmin):
		return append(slices.Clip(menu), accessMenu)
	default:
		return menu
	}
}

// sections name the section of each template that is not a section's own.
var sections = map[string]string{
	"overview": "/ui/", "problems": "/ui/problems", "tail": "/ui/tail",
	"events": "/ui/events", "event": "/ui/events", "deliveries": "/ui/deliveries", "delivery": "/ui/deliveries",
	"batches": "/ui/batches", "batch": "/ui/batches",
	"dead-letters": "/ui/dead-letters", "dead-letter": "/ui/dead-letters", "dead-letter-purge": "/ui/dead-letters",
	"dead-letters-many": "/ui/dead-letters",
	"operations":        "/ui/operations", "operation": "/ui/operations",
	"topics": "/ui/topics", "topic": "/ui/topics", "subscriptions": "/ui/subscriptions",
	"subscription": "/ui/subscriptions", "policies": "/ui/policies",
	"topic-form": "/ui/topics", "topic-keys": "/ui/topics", "publish": "/ui/topics", "topic-delete": "/ui/topics",
	"subscription-form": "/ui/subscriptions", "subscription-topic": "/ui/subscriptions",
	"subscription-delete": "/ui/subscriptions",
	"policy-form":         "/ui/policies", "policy-delete": "/ui/policies",
	"jobs": "/ui/jobs", "storage": "/ui/storage", "audit": "/ui/audit",
	"account": "/ui/account", "login": "/ui/account", "users": "/ui/users", "api-keys": "/ui/api-keys",
}

// show answers with a page. A list that a person has leafed through stands still, and so does what is over.
func (p *pages) show(c echo.Context, name, title string, live bool, view any, trail ...link) error {
	f := frame{
		Title: title, Live: live && !c.QueryParams().Has("before") && !c.QueryParams().Has("after"), Trail: trail,
		Done: doneText(c.QueryParam("done")), View: view,
	}
	status := http.StatusOK
	if said, ok := c.Get(refusalKey).(*refusedError); ok {
		status, f.Refused = said.status, said.text
	}
	return p.render(c, status, name, f)
}

// complete fills in what is the same on every page.
func (p *pages) complete(c echo.Context, name string, f *frame) {
	address := *c.Request().URL
	query := address.Query()
	query.Del("done") // a page that is asked for again tells no more of what was done
	address.RawQuery = query.Encode()
	if c.Request().Method == http.MethodPost { // a page that refuses asks for itself again, and not for its form
		address.Path, address.RawPath = path.Dir(address.Path), ""
	}
	f.Role = access.ActorOf(c.Request().Context()).Role
	if session, ok := c.Get(sessionKey).(*access.Session); ok {
		f.Who = session.User
	}
	f.Section, f.Menu, f.At, f.Here = sections[name], menuFor(f.Role), p.now(), address.RequestURI()
}
