// Package show runs the laboratory and shows what it has found: as a table, as the story of one cell,
// and as a page with a timeline for each anomaly. Command proof/compare is its front.
package show

import (
	"context"
	"errors"
	"io"

	"github.com/lockstep-go/lockstep/proof/laboratory"
)

// Run plays what is wanted and prints it. If html is not empty, it is the file for the page. Run returns
// an error if a cell is not as expected, and if nothing could be played.
func Run(ctx context.Context, out io.Writer, o laboratory.Options, html string) error {
	found, err := laboratory.Run(ctx, o)
	if len(found.Tables) == 0 { // nothing was wanted, or it did not begin
		return err
	}
	r := report{found}
	if err := r.text(out); err != nil {
		return err
	}
	if html != "" {
		if err := r.writePage(html); err != nil {
			return err
		}
	}
	return errors.Join(found.Err(), err)
}
