package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/store"
)

// validatedText is what whoever opens validationUrl reads. Event Grid's own words are documented nowhere.
const validatedText = "Webhook successfully validated as a subscription endpoint."

// openValidationURL answers GET and POST /topics/{topic}/eventsubscriptions/{subscription}/validate. The code is the credential: wrong ones
// are counted with those of publishers.
func (s *Server) openValidationURL(c echo.Context) error {
	topic, name, code := pathValue(c, "topic"), pathValue(c, "subscription"), c.QueryParam("id")
	if code == "" {
		return invalid("id", "is required: the code of the handshake")
	}
	if !storable(topic) || !storable(name) || !storable(code) {
		return noValidation()
	}
	from := sender(c.Request().RemoteAddr)
	if wait := s.guesses.wait(from, topic, digestOf(code), time.Now()); wait > 0 {
		return tooManyGuesses(wait, "from your address")
	}
	actsAs(c, store.Actor{Name: validatorName, Address: c.RealIP()})
	switch err := s.store.CompleteValidation(c.Request().Context(), topic, name, code); {
	case errors.Is(err, store.ErrNotFound):
		if wait := s.guesses.wrong(from, topic, time.Now()); wait > 0 {
			return tooManyGuesses(wait, "for this topic")
		}
		return noValidation()
	case errors.Is(err, store.ErrCallbackOver):
		return refuse(http.StatusBadRequest, codeValidationOver,
			"this validation is over: it failed, or its time has passed; POST /v1/topics/{topic}/subscriptions/{subscription}/validate begins another one")
	case err != nil:
		return err
	}
	return c.String(http.StatusOK, validatedText)
}

func noValidation() error {
	return refuse(http.StatusNotFound, codeNotFound, "no validation handshake has this code for this event subscription")
}
