// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/spokelet/spokelet/workers/bundle"
	"github.com/spokelet/spokelet/workers/store"
)

const (
	// folder of the image that holds the scripts.
	folder     = "worker"
	configName = "config.capnp"

	tarFolderMode = 0o555
	tarFileMode   = 0o444
)

// layerContent is the layer that is added to an image: the configuration, generated from the
// input, and the modules, which are read whenever the layer is.
type layerContent struct {
	input bundle.Input
	work  string

	mu     sync.Mutex
	failed error // guarded by mu
}

// layer returns the content as a layer. It is generated each time it is read, once for its digest
// and once for the upload, so that it needs neither memory nor disk.
func (c *layerContent) layer(kind types.MediaType) (v1.Layer, error) {
	layer, err := tarball.LayerFromOpener(c.open, tarball.WithMediaType(kind), tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, fmt.Errorf("layer: %w", err)
	}
	return layer, nil
}

// open returns the layer as a tar file.
func (c *layerContent) open() (io.ReadCloser, error) {
	reader, writer := io.Pipe()
	// It ends with what it writes, or when the reader is closed.
	go func() { writer.CloseWithError(c.recordError(c.write(writer))) }()
	return reader, nil
}

// recordError keeps an error that the reader did not cause.
func (c *layerContent) recordError(err error) error {
	if err != nil && !errors.Is(err, io.ErrClosedPipe) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.failed = err
	}
	return err
}

// firstError returns why the layer could not be read, which a registry's client reports as an
// error of the network.
func (c *layerContent) firstError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed
}

// write writes the tar file, in the order of the input, byte for byte the same in each run.
func (c *layerContent) write(to io.Writer) error {
	work, err := os.OpenRoot(c.work)
	if err != nil {
		return fmt.Errorf("work folder: %w", err)
	}
	defer func() { _ = work.Close() }()
	archive := tar.NewWriter(to)
	if err := writeEntry(archive, folder, 0, nil); err != nil {
		return err
	}
	config := c.input.Config()
	if err := writeEntry(archive, path.Join(folder, configName), int64(len(config)), bytes.NewReader(config)); err != nil {
		return err
	}
	made := map[string]bool{".": true}
	for i, worker := range c.input.Workers {
		for j, module := range worker.Modules {
			where := c.input.Path(i, j)
			if dir := path.Dir(where); !made[dir] {
				made[dir] = true
				if err := writeEntry(archive, path.Join(folder, dir), 0, nil); err != nil {
					return err
				}
			}
			if err := copyFile(archive, work, where, module.Size); err != nil {
				return fmt.Errorf("script %s: module %q: %w", worker.Name, module.Name, err)
			}
		}
	}
	return archive.Close()
}

// writeEntry writes a file, or a folder if from is nil.
func writeEntry(archive *tar.Writer, name string, size int64, from io.Reader) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: tarFileMode, ModTime: epoch, Format: tar.FormatUSTAR,
	}
	if from == nil {
		header.Typeflag, header.Mode, header.Name = tar.TypeDir, tarFolderMode, name+"/"
	}
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("layer: %s: %w", name, err)
	}
	if from == nil {
		return nil
	}
	if _, err := io.Copy(archive, from); err != nil {
		return fmt.Errorf("layer: %s: %w", name, err)
	}
	return nil
}

// copyFile writes a module, which has to be as large as the input says.
func copyFile(archive *tar.Writer, work *os.Root, name string, size int64) error {
	file, err := work.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size || !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it has %d bytes, not %d", store.ErrChanged, info.Size(), size)
	}
	return writeEntry(archive, path.Join(folder, name), size, file)
}
