package server

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/labstack/echo/v4"

	"postrider/event"
	"postrider/policy"
	"postrider/store"
)

// Codes of an error answer, beside those of package event.
const (
	codeInvalidRequest       = "InvalidRequest"
	codeInvalidValue         = "InvalidValue"
	codeUnknownMember        = "UnknownMember"
	codeUnauthorized         = "Unauthorized"
	codeForbidden            = "Forbidden"
	codeNotFound             = "NotFound"
	codeMethodNotAllowed     = "MethodNotAllowed"
	codePreconditionFailed   = "PreconditionFailed"
	codeMisdirected          = "MisdirectedRequest"
	codeTooManyRequests      = "TooManyRequests"
	codeUnsupportedMediaType = event.CodeUnsupportedMediaType
	codeInternal             = "InternalError"
	codeUnavailable          = "ServiceUnavailable"
	codeNotReady             = "NotReady"
)

// refusal is an error whose every word may be shown to the caller.
type refusal struct {
	status        int
	code, message string
	details       []ErrorDetail
	// actor is whose credential was right and is not allowed this; "" for none.
	actor string
	// retryAfter is sent with 429, in whole seconds.
	retryAfter time.Duration
}

// Error returns the message.
func (r *refusal) Error() string { return r.message }

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status: status, code: code, message: fmt.Sprintf(format, args...)}
}

func unauthorized(message string) error {
	return refuse(http.StatusUnauthorized, codeUnauthorized, "%s", message)
}

// forbidden answers a right credential that is not allowed what it asks for.
func forbidden(actor, format string, args ...any) error {
	r := refuse(http.StatusForbidden, codeForbidden, format, args...)
	r.actor = actor
	return r
}

// conflict answers what contradicts the state of things; openapi.yaml lists the codes.
func conflict(code ConflictCode, format string, args ...any) *refusal {
	return refuse(http.StatusConflict, string(code), format, args...)
}

// tooManyGuesses answers credentials that are not looked at, or were wrong once too often.
func tooManyGuesses(wait time.Duration, whose string) error {
	r := refuse(http.StatusTooManyRequests, codeTooManyRequests, "too many wrong credentials %s; wait for as long as Retry-After says, and check the credential", whose)
	r.retryAfter = wait
	return r
}

func topicNotFound(name string) error {
	return refuse(http.StatusNotFound, codeNotFound, "topic %q does not exist", shorten(name))
}

func subscriptionNotFound(topic, name string) error {
	return refuse(http.StatusNotFound, codeNotFound, "topic %q has no event subscription %q", shorten(topic), shorten(name))
}

// problems are the mistakes found in one request.
type problems []ErrorDetail

func (p *problems) add(code, target, format string, args ...any) {
	target = shorten(target)
	*p = append(*p, ErrorDetail{Code: code, Target: target, Message: strings.TrimSpace(target + " " + fmt.Sprintf(format, args...))})
}

// value adds what is wrong with the value of target.
func (p *problems) value(target, format string, args ...any) {
	p.add(codeInvalidValue, target, format, args...)
}

// check adds err, which one of package policy's judges returned; nil adds nothing. They all return ValidationErrors; any
// other error refuses the request too, though it cannot say why.
func (p *problems) check(err error) {
	var invalid *policy.ValidationError
	switch {
	case errors.As(err, &invalid):
		p.value(invalid.Field, "%s", invalid.Message)
	case err != nil:
		p.value("", "the request holds a value that cannot be taken")
	}
}

// err is the answer that names them all, its message being the first; nil when there are none.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return &refusal{status: http.StatusBadRequest, code: codeInvalidRequest, message: p[0].Message, details: p}
}

func invalid(target, format string, args ...any) error {
	var p problems
	p.value(target, format, args...)
	return p.err()
}

// answerError is the only place where an error becomes a status.
func (s *Server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	answer := answerTo(err, c)
	if answer == nil {
		// The id joins the caller's report to the line in the log; the cause is the operator's alone.
		id := rand.Text()
		s.log.Error("a request failed", append(failedRequest(c, err), "errorId", id)...)
		answer = refuse(http.StatusInternalServerError, codeInternal, "something went wrong here; the log has it under error id %s", id)
	} else {
		s.logFailure(c, answer.status, err)
	}
	if err := answer.write(c); err != nil {
		s.log.Debug("an error could not be answered", "error", err)
	}
}

func (r *refusal) write(c echo.Context) error {
	header := c.Response().Header()
	switch r.status {
	case http.StatusUnauthorized:
		header.Set(echo.HeaderWWWAuthenticate, `Bearer realm="postrider"`)
	case http.StatusServiceUnavailable:
		header.Set(echo.HeaderRetryAfter, "1")
	case http.StatusTooManyRequests:
		header.Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(r.retryAfter.Seconds()))))
	}
	if c.Request().Method == http.MethodHead {
		return c.NoContent(r.status)
	}
	details := r.details
	if details == nil {
		details = []ErrorDetail{}
	}
	return c.JSON(r.status, ErrorAnswer{Error: Error{Code: r.code, Message: r.message, Details: details}})
}

// answerTo finds what may be said of err; nil when nothing may.
func answerTo(err error, c echo.Context) *refusal {
	var (
		refused *refusal
		parse   *event.Error
		router  *echo.HTTPError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &parse):
		return parseRefusal(parse)
	case errors.As(err, &router):
		return routerRefusal(router, c)
	default:
		return storeRefusal(err)
	}
}

func parseRefusal(e *event.Error) *refusal {
	answer := refuse(e.Status, e.Code, "%s", e.Message)
	if e.Index < 0 {
		return answer
	}
	target := fmt.Sprintf("events[%d]", e.Index)
	if e.Field != "" {
		target += "." + e.Field
	}
	answer.details = []ErrorDetail{{Code: e.Code, Target: target, Message: e.Message}}
	return answer
}

// routerRefusal words what echo and the generated parameter reading have to say.
func routerRefusal(e *echo.HTTPError, c echo.Context) *refusal {
	r := c.Request()
	switch e.Code {
	case http.StatusNotFound:
		return refuse(e.Code, codeNotFound, "there is nothing at %s; /openapi.yaml lists what there is", shorten(r.URL.Path))
	case http.StatusMethodNotAllowed:
		return refuse(e.Code, codeMethodNotAllowed, "%s is not possible at %s; /openapi.yaml lists what is", shorten(r.Method), shorten(r.URL.Path))
	case http.StatusRequestEntityTooLarge:
		return refuse(e.Code, event.CodePayloadTooLarge, "the request is too large")
	case http.StatusBadRequest:
		return parameterRefusal(fmt.Sprint(e.Message), c)
	}
	if e.Code >= http.StatusInternalServerError {
		return nil
	}
	return refuse(e.Code, strings.ReplaceAll(http.StatusText(e.Code), " ", ""), "%s", http.StatusText(e.Code))
}

// parameterForms says what the parameters that are not text must be.
var parameterForms = map[string]string{
	"batchId":     "an integer",
	"deliveryId":  "an integer",
	"dryRun":      "true or false",
	"lastStatus":  "an integer, such as 503",
	"limit":       fmt.Sprintf("an integer between 1 and %d", maxPage),
	"redelivered": "true or false",
	"unmatched":   "true or false",
}

// parameterRefusal names the parameter, its value and what is allowed, in place of the generated code's own error.
func parameterRefusal(text string, c echo.Context) *refusal {
	message, _, _ := strings.Cut(text, ":") // the rest is Go's text
	name, isParameter := strings.CutPrefix(message, "Invalid format for parameter ")
	if !isParameter {
		return refuse(http.StatusBadRequest, codeInvalidRequest, "%s", message)
	}
	var found problems
	values := c.QueryParams()[name]
	switch form := parameterForms[name]; {
	case len(values) > 1:
		found.value(name, "must be given once, not %d times", len(values))
	case form == "":
		found.value(name, "must be text that is percent-encoded correctly")
	default:
		value := strings.Join(append(values, pathValue(c, name)), "")
		found.value(name, "must be %s, not %q", form, shorten(value))
	}
	return &refusal{status: http.StatusBadRequest, code: codeInvalidRequest, message: found[0].Message, details: found}
}

func storeRefusal(err error) *refusal {
	var no *store.FunctionError
	if errors.As(err, &no) {
		return functionRefusal(no)
	}
	switch {
	case store.IsDiskFull(err):
		return refuse(http.StatusServiceUnavailable, codeUnavailable, "the database's disk is full; nothing was stored; try again later")
	case errors.Is(err, store.ErrNotFound):
		return refuse(http.StatusNotFound, codeNotFound, "what the request names does not exist")
	case errors.Is(err, store.ErrOwnTopic):
		return conflict(ConflictCodeSystemTopic, "topic %q is postrider's own: it is there to be subscribed to; it cannot be deleted, and its access keys are nobody's", store.SystemTopic)
	case errors.Is(err, store.ErrTooSlow):
		return refuse(http.StatusServiceUnavailable, codeUnavailable, "this could not be read in time; ask for less: a shorter time, or one event subscription")
	case errors.Is(err, store.ErrConflict):
		return conflict(ConflictCodeConcurrentChange, "what the request changes was changed meanwhile; read it again, and try again")
	case errors.Is(err, store.ErrUnauthorized):
		return refuse(http.StatusUnauthorized, codeUnauthorized, "the credential is not accepted")
	case errors.Is(err, store.ErrPoison):
		return refuse(http.StatusBadRequest, event.CodeInvalidEvent, "PostgreSQL cannot store this data")
	case errors.Is(err, store.ErrUnavailable), store.IsOutage(err), errors.Is(err, context.Canceled):
		return refuse(http.StatusServiceUnavailable, codeUnavailable, "the database cannot be asked now; try again")
	default:
		return nil
	}
}

// functionRefusal words what a function of the store refuses.
func functionRefusal(no *store.FunctionError) *refusal {
	switch {
	case errors.Is(no, store.ErrNotFound):
		return refuse(http.StatusNotFound, codeNotFound, "%s", no.Message)
	case errors.Is(no, store.ErrInvalid):
		r := refuse(http.StatusBadRequest, codeInvalidRequest, "%s", no.Message)
		r.details = []ErrorDetail{{Code: codeInvalidValue, Target: no.Field, Message: no.Message}}
		return r
	default:
		return conflict(conflictCode(no), "%s", no.Message)
	}
}

// conflictCodes are those of the conflicts that the database's functions name.
var conflictCodes = map[string]ConflictCode{
	"paused":        ConflictCodeSubscriptionPaused,
	"resuming":      ConflictCodeSubscriptionResuming,
	"probation":     ConflictCodeSubscriptionOnProbation,
	"expired":       ConflictCodeSubscriptionExpired,
	"deleted":       ConflictCodeSubscriptionDeleted,
	"not_validated": ConflictCodeEndpointNotValidated,
	"ended":         ConflictCodeDeliveryEnded,
	"running":       ConflictCodeAttemptInProgress,
	"event_gone":    ConflictCodeEventGone,
	"erased":        ConflictCodeEventErased,
	"redelivered":   ConflictCodeDeadLetterRedelivered,
	"exporting":     ConflictCodeDeadLetterExporting,
	"schema":        ConflictCodeSchemaMismatch,
	"operation":     ConflictCodeOperationRunning,
}

func conflictCode(no *store.FunctionError) ConflictCode {
	switch {
	case errors.Is(no, store.ErrLastAdmin):
		return ConflictCodeLastAdmin
	case errors.Is(no, store.ErrNameTaken):
		return ConflictCodeNameTaken
	case errors.Is(no, store.ErrTopicExists):
		return ConflictCodeTopicExists
	}
	return cmp.Or(conflictCodes[no.Conflict], ConflictCodeConcurrentChange)
}

// shorten keeps a caller's own text from filling an answer: a path can be 64 KiB long.
func shorten(s string) string {
	const most = 128
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
