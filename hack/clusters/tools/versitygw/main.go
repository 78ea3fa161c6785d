// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command versitygw is the Versity S3 Gateway on a directory: an object store for tests.
// Of the gateway's own command it leaves out all other stores, with whose clients that
// one takes twice as long to build.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

const usage = `usage: ROOT_ACCESS_KEY=... ROOT_SECRET_KEY=... versitygw ADDRESS DIRECTORY

Serves S3 on an address, as host:port. What is stored is kept in the directory.
`

func main() {
	if len(os.Args) != 3 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := serve(ctx, os.Args[1], os.Args[2])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "versitygw:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, address, dir string) error {
	// The names of buckets and the attributes of objects are apart, as not every file
	// system has extended attributes for the latter.
	buckets, attributes := filepath.Join(dir, "buckets"), filepath.Join(dir, "attributes")
	for _, d := range []string{buckets, attributes} {
		if err := os.Mkdir(d, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	sidecar, err := meta.NewSideCar(attributes)
	if err != nil {
		return err
	}
	store, err := posix.New(buckets, sidecar, posix.PosixOpts{SideCarDir: attributes, Concurrency: 100})
	if err != nil {
		return err
	}
	// The numbers are those of the gateway's own command, the first two a hundredth.
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Ports: []string{address}, MaxConnections: 2500, MaxRequests: 1000, MultipartMaxParts: 10000, KeepAlive: true,
	})
}
