// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/spokelet/spokelet/hack/clusters/image"
)

// images are those that a process has built, by their names and tags.
type images struct {
	mu   sync.Mutex
	made map[string]func() (Image, error) // guarded by mu
}

// once builds an image, or returns the one that was built before.
func (i *images) once(ref string, build func() (Image, error)) (Image, error) {
	if i == nil {
		return build()
	}
	i.mu.Lock()
	made, ok := i.made[ref]
	if !ok {
		made = sync.OnceValues(build)
		i.made[ref] = made
	}
	i.mu.Unlock()
	return made()
}

// hold takes the lock of a file that several processes make, until release is called, and makes
// the folder of the file. It ends with its process.
func hold(path string) (release func(), err error) {
	dir, name := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("lock of %s: %w", path, err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // beside what the caller makes
	if err != nil {
		return nil, fmt.Errorf("lock of %s: %w", path, err)
	}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("lock of %s: %w", path, err), file.Close())
		}
	}
}

// writeImage writes the archive of an image, unless it is there with the same content. That is
// told by checksums: the go command gives a program that is up to date a new time.
func writeImage(archive string, spec image.Spec) error {
	release, err := hold(archive)
	if err != nil {
		return err
	}
	defer release()
	sum, err := checksum(spec)
	if err != nil {
		return err
	}
	record := archive + ".sum"
	written, _ := os.ReadFile(record) //nolint:gosec // what cannot be read is written again
	if _, err := os.Stat(archive); err == nil && string(written) == sum {
		return nil
	}
	// Without the record an archive that is written only in part counts for nothing.
	if err := os.Remove(record); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := image.Write(archive, spec); err != nil {
		return err
	}
	return os.WriteFile(record, []byte(sum), 0o600)
}

// checksum differs for any two images that differ.
func checksum(spec image.Spec) (string, error) {
	all := sha256.New()
	fmt.Fprintf(all, "%q %q %q %q %q\n", spec.Ref, spec.Entrypoint, spec.Env, spec.User, spec.Architecture)
	for _, file := range spec.Files {
		fmt.Fprintf(all, "%q %q %o ", file.Path, file.Link, file.Mode)
		if file.Source != "" {
			content := sha256.New()
			if err := copyInto(content, file.Source); err != nil {
				return "", err
			}
			fmt.Fprintf(all, "%x", content.Sum(nil))
		}
		fmt.Fprintln(all)
	}
	return hex.EncodeToString(all.Sum(nil)), nil
}

func copyInto(to io.Writer, path string) error {
	file, err := os.Open(path) //nolint:gosec // the caller names what goes into the image
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	_, err = io.Copy(to, file)
	return err
}
