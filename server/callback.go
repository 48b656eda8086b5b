package server

import (
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"postrider/access"
	"postrider/catalog"
	"postrider/postgres"
	"postrider/server/api"
	"postrider/server/auth"
	"postrider/server/management"
)

// validatedText is the response to an opened validationUrl. Event Grid's text is not documented.
const validatedText = "Webhook successfully validated as a subscription endpoint."

// openValidationURL responds to GET and POST /topics/{topic}/eventsubscriptions/{subscription}/validate. The code is a
// credential: wrong codes count with the wrong credentials of publishers.
func (s *Server) openValidationURL(c echo.Context) error {
	topic, name, code := api.PathValue(c, "topic"), api.PathValue(c, "subscription"), c.QueryParam("id")
	if code == "" {
		return api.Invalid("id", "is required: it is the code of the handshake")
	}
	if !api.Storable(topic) || !api.Storable(name) || !api.Storable(code) {
		return noValidation()
	}
	from := auth.Sender(c.Request().RemoteAddr)
	if wait := s.auth.Guesses.Wait(from, topic, auth.DigestOf(code), time.Now()); wait > 0 {
		return api.TooManyGuesses(wait, "from your address")
	}
	auth.ActAs(c, access.Actor{Name: auth.ValidatorName, Address: c.RealIP()})
	switch err := s.parts.Handshakes.CompleteValidation(c.Request().Context(), topic, name, code); {
	case errors.Is(err, postgres.ErrNotFound):
		if wait := s.auth.Guesses.Wrong(from, topic, time.Now()); wait > 0 {
			return api.TooManyGuesses(wait, "for this topic")
		}
		return noValidation()
	case errors.Is(err, catalog.ErrValidationExpired):
		return api.Reject(http.StatusBadRequest, management.CodeValidationOver,
			"this validation has failed or expired; start another one with "+
				"POST /v1/topics/{topic}/subscriptions/{subscription}/validate")
	case err != nil:
		return err
	}
	return c.String(http.StatusOK, validatedText)
}

func noValidation() error {
	return api.NotFound("no validation handshake of this event subscription has this code")
}
