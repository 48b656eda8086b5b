package web

import (
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

const (
	// pageTime bounds the database's part of a page: a person gets an answer, or hears that there is none.
	pageTime = 10 * time.Second
	// subscriptionLimit bounds a page that has no second one; SQL has the rest.
	subscriptionLimit = 1000
	// deadLetterPage is how many dead letters a page shows. A body is cut to 4,000 characters, so a page stays below a
	// megabyte in nearly all cases.
	deadLetterPage = 50
)

// overview shows where to look first. It counts what one page of each list shows, because an exact count reads the
// whole table.
func (p *pages) overview(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTime)
	defer cancel()
	subscriptions, err := p.store.SubscriptionLines(ctx, subscriptionLimit+1)
	if err != nil {
		return err
	}
	newest := cursor{}
	letters, err := p.store.DeadLetterLines(ctx, newest.at, newest.id, deadLetterPage+1)
	if err != nil {
		return err
	}
	return p.render(c, http.StatusOK, "overview", overviewOf(subscriptions, letters, p.now()))
}

func (p *pages) subscriptions(c echo.Context) error {
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTime)
	defer cancel()
	lines, err := p.store.SubscriptionLines(ctx, subscriptionLimit+1)
	if err != nil {
		return err
	}
	return p.render(c, http.StatusOK, "subscriptions", subscriptionsOf(lines, p.now()))
}

func (p *pages) deadLetters(c echo.Context) error {
	before, err := parseCursor(c.QueryParam("before"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), pageTime)
	defer cancel()
	lines, err := p.store.DeadLetterLines(ctx, before.at, before.id, deadLetterPage+1)
	if err != nil {
		return err
	}
	return p.render(c, http.StatusOK, "dead-letters", deadLettersOf(lines, before, p.now()))
}
