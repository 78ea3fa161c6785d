// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Package image writes container images without a container engine: one layer
// of given files, as a docker-archive tarball that containerd, Docker and kind
// can load. The same input gives the same bytes, on any machine and day.
package image

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// File is one file of an image: a copy of Source, a symbolic link when Link is
// set, or an empty directory when neither is.
type File struct {
	Path   string      // absolute, in the image; parents are made
	Source string      // on this machine
	Link   string      // target of a symbolic link
	Mode   os.FileMode // permission bits and the sticky bit; 0 means 0555 (directories: 0755)
}

// Spec describes an image.
type Spec struct {
	Ref          string // like spokelet.io/hub:dev; a tag, not a digest
	Files        []File
	Entrypoint   []string
	Env          []string // NAME=value
	User         string   // empty means root; 65532 is the custom of images without one
	Architecture string   // as Go names them; empty means this machine's
}

// ErrSpec is returned for a description that makes no image.
var ErrSpec = errors.New("invalid image")

// Validate checks the description without looking at the files.
func (s Spec) Validate() error {
	if _, err := name.NewTag(s.Ref); err != nil {
		return fmt.Errorf("%w: reference %q: %w", ErrSpec, s.Ref, err)
	}
	seen := make(map[string]bool)
	for _, file := range s.Files {
		if !path.IsAbs(file.Path) || path.Clean(file.Path) != file.Path || file.Path == "/" {
			return fmt.Errorf("%w: file %q: want a clean absolute path", ErrSpec, file.Path)
		}
		if seen[file.Path] {
			return fmt.Errorf("%w: file %q: given twice", ErrSpec, file.Path)
		}
		if file.Source != "" && file.Link != "" {
			return fmt.Errorf("%w: file %q: both a copy and a link", ErrSpec, file.Path)
		}
		seen[file.Path] = true
	}
	return nil
}

// Write writes the image to the file of that path. It appears whole or not at all.
func Write(out string, spec Spec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	tag, err := name.NewTag(spec.Ref)
	if err != nil {
		return fmt.Errorf("image %s: %w", spec.Ref, err)
	}
	image, err := build(spec)
	if err != nil {
		return fmt.Errorf("image %s: %w", spec.Ref, err)
	}
	file, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+"-")
	if err != nil {
		return fmt.Errorf("image %s: %w", spec.Ref, err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // there is nothing after the rename
	if err := errors.Join(tarball.Write(tag, image, file), file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("image %s: %w", spec.Ref, err)
	}
	if err := os.Rename(file.Name(), out); err != nil {
		return fmt.Errorf("image %s: %w", spec.Ref, err)
	}
	return nil
}

func build(spec Spec) (v1.Image, error) {
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return stream(spec.Files), nil
	}, tarball.WithCompressionLevel(gzip.BestSpeed))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture = spec.Architecture
	if config.Architecture == "" {
		config.Architecture = runtime.GOARCH
	}
	config.OS = "linux"
	config.Created = v1.Time{Time: epoch()}
	config.Config.Entrypoint = spec.Entrypoint
	config.Config.Env = spec.Env
	config.Config.User = spec.User
	return mutate.ConfigFile(image, config)
}

// Tree describes all that is in a directory of this machine, as it would be below /.
// Anything but files, directories and symbolic links is an error that is ErrSpec.
func Tree(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(source string, entry fs.DirEntry, err error) error {
		if err != nil || source == dir {
			return err
		}
		file, err := treeFile(source, entry)
		if err != nil {
			return err
		}
		file.Path = strings.TrimPrefix(source, filepath.Clean(dir))
		files = append(files, file)
		return nil
	})
	return files, err
}

// treeFile describes one of a tree, but for its path.
func treeFile(source string, entry fs.DirEntry) (File, error) {
	switch {
	case entry.Type() == fs.ModeSymlink:
		target, err := os.Readlink(source)
		return File{Link: target}, err
	case entry.IsDir():
		return File{}, nil
	case entry.Type().IsRegular():
		info, err := entry.Info()
		if err != nil {
			return File{}, err
		}
		return File{Source: source, Mode: info.Mode().Perm()}, nil
	}
	return File{}, fmt.Errorf("%w: %s is neither a file nor a directory nor a link", ErrSpec, source)
}

// epoch is the time of everything in an image.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// stream gives the layer's tar, made while it is read: it is read several times
// (for its digests and its bytes) and may hold large programs.
func stream(files []File) io.ReadCloser {
	reader, writer := io.Pipe()
	go func() {
		archive := tar.NewWriter(writer)
		err := writeFiles(archive, files)
		if err == nil {
			err = archive.Close()
		}
		writer.CloseWithError(err)
	}()
	return reader
}

func writeFiles(archive *tar.Writer, files []File) error {
	for _, file := range withParents(files) {
		if err := writeFile(archive, file); err != nil {
			return fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	return nil
}

// withParents sorts the files and puts the directories in front that they lie in.
func withParents(files []File) []File {
	byPath := make(map[string]File)
	for _, file := range files {
		for dir := path.Dir(file.Path); dir != "/"; dir = path.Dir(dir) {
			if _, given := byPath[dir]; !given {
				byPath[dir] = File{Path: dir}
			}
		}
	}
	for _, file := range files {
		byPath[file.Path] = file
	}
	all := make([]File, 0, len(byPath))
	for _, file := range byPath {
		all = append(all, file)
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return all
}

func writeFile(archive *tar.Writer, file File) error {
	header := &tar.Header{Name: strings.TrimPrefix(file.Path, "/"), ModTime: epoch(), Format: tar.FormatUSTAR}
	switch {
	case file.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, file.Link, 0o777
		return archive.WriteHeader(header)
	case file.Source == "":
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, header.Name+"/", mode(file.Mode, 0o755)
		return archive.WriteHeader(header)
	}
	source, err := os.Open(file.Source)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }() // only read
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size, header.Mode = tar.TypeReg, info.Size(), mode(file.Mode, 0o555)
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(archive, source)
	return err
}

// mode turns Go's mode bits into those of a tar header.
func mode(given, fallback os.FileMode) int64 {
	if given == 0 {
		given = fallback
	}
	bits := int64(given.Perm())
	if given&os.ModeSticky != 0 {
		bits |= 0o1000
	}
	return bits
}
