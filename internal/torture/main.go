// Torture runs the tests in full size, tells how far they are, and ends with the anomaly matrix: what each strategy did under each
// fault.
//
//	go run ./internal/torture [-html FILE] [-docs FILE] [flags of go test] [packages]
//
// It is what `make torture` calls. Everything is in the tests: this program reads the output of `go test -json`, in which they
// report cells (package matrix). With -docs it puts the matrix between the marks in that file.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"time"

	"github.com/lockstep-go/lockstep/internal/matrix"
)

func main() {
	html := flag.String("html", "", "write the matrix as a page to this `file`")
	docs := flag.String("docs", "", "put the matrix between the marks in this `file`")
	flag.Usage = func() {
		fmt.Println("usage: torture [-html FILE] [-docs FILE] [-- flags of go test] [packages]")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Args(), *html, *docs)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "torture:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, html, docs string) error {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Env = append(os.Environ(), "LOCKSTEP_TORTURE=1")
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p := newProgress(os.Stdout, began)
	var table matrix.Table
	read := follow(bufio.NewReader(out), p, &table)
	p.end()
	failed := cmd.Wait()
	if err := errors.Join(read, table.Text(os.Stdout)); err != nil {
		return err
	}
	if html != "" {
		if err := writePage(html, &table); err != nil {
			return err
		}
	}
	if failed != nil {
		return fmt.Errorf("after %v: %w", time.Since(began).Round(time.Second), failed)
	}
	if docs != "" { // what a run that failed has found is not for the documentation
		return publish(docs, args, &table)
	}
	return nil
}

func writePage(file string, table *matrix.Table) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(table.Page(f, "What each strategy did under each fault"), f.Close())
}
