// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/spokelet/spokelet/hack/clusters"
)

// put stores the files of a folder under a key of the demo's object store.
func put(ctx context.Context, dir, key string) error {
	key = strings.Trim(key, "/")
	if dir == "" || key == "" {
		return errors.New("say what is stored, and where: make demo-put FROM=folder TO=account/script/version")
	}
	e, err := reach(ctx)
	if errors.Is(err, clusters.ErrNotFound) {
		return fmt.Errorf("there are no clusters; make demo-workers makes them: %w", err)
	}
	if err != nil {
		return err
	}
	store, err := e.OpenStoreInHub(ctx)
	if err != nil {
		return err
	}
	modules, err := read(os.DirFS(dir))
	if err != nil {
		return fmt.Errorf("put %s: %w", dir, err)
	}
	for _, m := range modules {
		if err := store.Put(ctx, path.Join(key, m.name), m.content); err != nil {
			return err
		}
		fmt.Printf("s3://%s/%s\n", store.Bucket, path.Join(key, m.name))
	}
	return nil
}

// module is a file of a script.
type module struct{ name, content string }

// read reads the files of a folder and of those in it, in the order of their names.
func read(dir fs.FS) ([]module, error) {
	var modules []module
	err := fs.WalkDir(dir, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, name)
		modules = append(modules, module{name, string(content)})
		return err
	})
	if err == nil && len(modules) == 0 {
		err = fmt.Errorf("there are no files: %w", fs.ErrNotExist)
	}
	return modules, err
}
