package site

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// compressFrom is the size in bytes from which a page is compressed: a smaller one fits into one packet.
const compressFrom = 1400

// Compress compresses pages with gzip, except those of which plain returns true.
//
// An attacker could otherwise guess a secret from the length of a page that has the secret and a text of the attacker.
// So pages with secrets are plain, and no page is compressed that another site has requested.
func Compress(plain func(c echo.Context) bool) echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{
		Level: gzip.BestSpeed, MinLength: compressFrom,
		Skipper: func(c echo.Context) bool { return plain(c) || fromOtherSite(c.Request()) },
	})
}

// fromOtherSite reports that a browser sends a request for another site. Browsers send the header over HTTPS and to
// localhost; without HTTPS, the length of a page is no secret.
func fromOtherSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// acceptsGzip reports whether the client accepts gzip.
func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get(echo.HeaderAcceptEncoding), "gzip")
}

// compressed is a file in gzip; nil if that is not shorter.
func compressed(body []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil { // impossible: the level is valid
		return nil
	}
	_, _ = w.Write(body) // a buffer returns no error
	_ = w.Close()
	if out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}
