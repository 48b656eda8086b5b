package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"postrider/policy"
	"postrider/store"
)

// overviewView is what overview.html shows.
type overviewView struct {
	Subscriptions, Holding, DeadLetters string
	NewestDeadLetter                    *moment
}

func overviewOf(subscriptions []store.SubscriptionLine, letters []store.DeadLetterLine, now time.Time) overviewView {
	holding := 0
	for _, line := range subscriptions {
		if line.Hold != nil {
			holding++
		}
	}
	view := overviewView{
		Subscriptions: atMost(len(subscriptions), subscriptionLimit),
		Holding:       atMost(holding, subscriptionLimit),
		DeadLetters:   atMost(len(letters), deadLetterPage),
	}
	if len(letters) > 0 {
		newest := momentOf(letters[0].DeadLetteredAt, now)
		view.NewestDeadLetter = &newest
	}
	return view
}

// atMost says a number as far as it was counted: "50+" when there are more than the limit.
func atMost(n, limit int) string {
	if n > limit {
		return strconv.Itoa(limit) + "+"
	}
	return strconv.Itoa(n)
}

// subscriptionsView is what subscriptions.html shows.
type subscriptionsView struct {
	Rows  []subscriptionRow
	Limit int // set when there are more than the page shows
}

type subscriptionRow struct {
	store.SubscriptionLine
	Attempts   string
	TimeToLive string
	OnHold     string
	Probation  *probationView // set where the hold is one
	Created    moment
}

// probationView says what a probation is for and when it may end.
type probationView struct {
	Cause string
	// Probing: the probe is under way. Otherwise NextProbe is when one is let through; nil when that time has come, or
	// comes within a minute: a moment so near is told as "just now".
	Probing   bool
	NextProbe *moment
}

// probationOf is nil for every other hold, and for none.
func probationOf(line *store.SubscriptionLine, now time.Time) *probationView {
	if orEmpty(line.Hold) != store.HoldProbation {
		return nil
	}
	view := &probationView{Cause: orEmpty(line.HoldCause), Probing: line.Probing}
	if !view.Probing && line.HoldUntil != nil && line.HoldUntil.Sub(now) >= time.Minute {
		next := momentOf(*line.HoldUntil, now)
		view.NextProbe = &next
	}
	return view
}

func subscriptionsOf(lines []store.SubscriptionLine, now time.Time) subscriptionsView {
	view := subscriptionsView{}
	if len(lines) > subscriptionLimit {
		lines, view.Limit = lines[:subscriptionLimit], subscriptionLimit
	}
	for _, line := range lines {
		view.Rows = append(view.Rows, subscriptionRow{
			SubscriptionLine: line,
			Attempts:         attemptLimit(line.MaxDeliveryAttempts),
			TimeToLive:       timeToLive(line.EventTimeToLiveInMinutes),
			OnHold:           orEmpty(line.Hold),
			Probation:        probationOf(&line, now),
			Created:          momentOf(line.CreatedAt, now),
		})
	}
	return view
}

func attemptLimit(limit *int) string {
	if limit == nil {
		return "any number of attempts"
	}
	return "up to " + plural(*limit, "attempt")
}

// timeToLive prints whole days and hours as such: 1440 minutes are read more easily as a day.
func timeToLive(minutes int) string {
	const hour, day = 60, 24 * 60
	switch {
	case minutes >= day && minutes%day == 0:
		return plural(minutes/day, "day")
	case minutes >= hour && minutes%hour == 0:
		return plural(minutes/hour, "hour")
	default:
		return plural(minutes, "minute")
	}
}

// deadLettersView is what dead-letters.html shows.
type deadLettersView struct {
	Rows  []deadLetterRow
	Top   bool   // this is the page with the newest
	Older string // cursor of the next page; empty on the last
}

type deadLetterRow struct {
	store.DeadLetterLine
	Sentence                string // the reason in words
	Tried                   string
	Outcome                 string
	Status                  string
	DeadLettered, Published moment
	LastAttempt             *moment
	Body                    string
	Cut                     bool // Body is not the whole
	Query                   string
}

func deadLettersOf(lines []store.DeadLetterLine, before cursor, now time.Time) deadLettersView {
	view := deadLettersView{Top: before == cursor{}}
	if len(lines) > deadLetterPage {
		lines = lines[:deadLetterPage]
		last := lines[deadLetterPage-1]
		view.Older = cursor{at: last.DeadLetteredAt, id: last.DeadLetterID}.String()
	}
	for _, line := range lines {
		view.Rows = append(view.Rows, deadLetterRowOf(line, now))
	}
	return view
}

// bodyCharacters is where the report cuts a body.
const bodyCharacters = 4000

func deadLetterRowOf(line store.DeadLetterLine, now time.Time) deadLetterRow {
	cut := utf8.RuneCountInString(line.BodyText) >= bodyCharacters
	line.EventID, line.EventType, line.Subject = visible(line.EventID), visible(line.EventType), visible(line.Subject)
	row := deadLetterRow{
		DeadLetterLine: line,
		Sentence:       policy.Reason(line.Reason).Sentence(),
		Tried:          plural(line.Attempts, "attempt"),
		Outcome:        orEmpty(line.LastOutcome),
		Status:         met(line.Attempts, line.LastStatus),
		DeadLettered:   momentOf(line.DeadLetteredAt, now),
		Published:      momentOf(line.PublishedAt, now),
		Body:           pretty(visible(line.BodyText)),
		Cut:            cut,
		Query:          deadLetterQuery(line.DeadLetterID),
	}
	if line.LastAttemptAt != nil {
		last := momentOf(*line.LastAttemptAt, now)
		row.LastAttempt = &last
	}
	return row
}

// deadLetterQuery is the row's twin in SQL, for people who go on in psql.
func deadLetterQuery(id uuid.UUID) string {
	return fmt.Sprintf("select * from postrider.dead_letters where dead_letter_id = '%s'", id)
}

// met is what the last attempt met: an HTTP status with its name, or nothing.
func met(attempts int, status *int) string {
	switch {
	case status == nil && attempts == 0:
		return "not attempted"
	case status == nil:
		return "no answer"
	}
	return strings.TrimSpace(strconv.Itoa(*status) + " " + http.StatusText(*status))
}

func orEmpty(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}
