package workbench

import (
	"bufio"
	"context"
	"io"
	"net/http"

	"github.com/labstack/echo/v4"

	"postrider/internal/sqlquery"
	"postrider/web/site"
)

// download runs the query of the form and sends all of its rows as a file. An error before the first row is shown on
// the page. One after it breaks the connection, so that the browser reports an incomplete file.
func (p *Pages) download(name, media string, format func(io.Writer) sqlquery.Writer) site.Page {
	return func(ctx context.Context, c echo.Context) error {
		view, request, err := p.posted(ctx, c)
		response := c.Response()
		buffered := bufio.NewWriterSize(response, 64<<10)
		if err == nil {
			response.Header().Set(echo.HeaderContentType, media)
			response.Header().Set(echo.HeaderContentDisposition, `attachment; filename="`+name+`"`)
			err = p.Queries.Download(ctx, request, format(buffered))
		}
		switch {
		case err == nil:
			return buffered.Flush()
		case response.Committed:
			p.Site.Log.WarnContext(ctx, "download of a query ended early", "error", err)
			panic(http.ErrAbortHandler)
		default:
			response.Header().Del(echo.HeaderContentDisposition)
			return p.failed(ctx, c, view, err)
		}
	}
}
