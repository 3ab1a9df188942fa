package pinned

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"encoding/binary"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// elfFile is an ELF file that consists of a header.
func elfFile(t *testing.T, machine elf.Machine) []byte {
	t.Helper()
	var buf bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS64)
	h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2LSB)
	h.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	require.NoError(t, binary.Write(&buf, binary.LittleEndian, h))
	return buf.Bytes()
}

// machoFile is a Mach-O file that consists of a header.
func machoFile(t *testing.T, cpu macho.Cpu) []byte {
	t.Helper()
	var buf bytes.Buffer
	h := macho.FileHeader{Magic: macho.Magic64, Cpu: cpu, Type: macho.TypeExec}
	require.NoError(t, binary.Write(&buf, binary.LittleEndian, h))
	buf.Write(make([]byte, 4)) // reserved
	return buf.Bytes()
}

// fatFile is a Mach-O file for two processors.
func fatFile(t *testing.T) []byte {
	t.Helper()
	var buf bytes.Buffer
	one, two := machoFile(t, macho.CpuAmd64), machoFile(t, macho.CpuArm64)
	const start = 8 + 2*20
	for _, v := range []any{
		uint32(macho.MagicFat), uint32(2),
		macho.FatArchHeader{Cpu: macho.CpuAmd64, Offset: start, Size: uint32(len(one))},
		macho.FatArchHeader{Cpu: macho.CpuArm64, Offset: uint32(start + len(one)), Size: uint32(len(two))},
	} {
		require.NoError(t, binary.Write(&buf, binary.BigEndian, v))
	}
	buf.Write(one)
	buf.Write(two)
	return buf.Bytes()
}

func TestPlatformsAreReadFromTheHeader(t *testing.T) {
	unixOS := runtime.GOOS
	if unixOS == "darwin" || unixOS == "windows" {
		unixOS = "linux"
	}
	for _, c := range []struct {
		name string
		file []byte
		want []string
	}{
		{"script", []byte("#!/bin/sh\n"), nil},
		{"windows", []byte("MZ\x90\x00\x03"), []string{"windows"}},
		{"elf amd64", elfFile(t, elf.EM_X86_64), []string{unixOS + "/amd64"}},
		{"elf arm64", elfFile(t, elf.EM_AARCH64), []string{unixOS + "/arm64"}},
		{"elf s390x", elfFile(t, elf.EM_S390), []string{unixOS + "/s390x"}},
		{"elf ppc64le", elfFile(t, elf.EM_PPC64), []string{unixOS + "/ppc64le"}},
		{"mach-o amd64", machoFile(t, macho.CpuAmd64), []string{"darwin/amd64"}},
		{"mach-o arm64", machoFile(t, macho.CpuArm64), []string{"darwin/arm64"}},
		{"mach-o for both", fatFile(t), []string{"darwin/amd64", "darwin/arm64"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := platforms(bytes.NewReader(c.file))
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
	for name, file := range map[string]string{"text": "this is not a program", "nothing": "", "half a header": elf.ELFMAG} {
		t.Run(name, func(t *testing.T) {
			_, err := platforms(bytes.NewReader([]byte(file)))
			assert.Error(t, err)
		})
	}
}

func TestRunnableSaysWhyNot(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	assert.NoError(t, Runnable(exe))

	dir := t.TempDir()
	assert.ErrorIs(t, Runnable(filepath.Join(dir, "none")), fs.ErrNotExist)
	assert.ErrorContains(t, Runnable(dir), "is not a file")

	other, arch := elf.EM_AARCH64, "arm64"
	if runtime.GOARCH == arch {
		other, arch = elf.EM_X86_64, "amd64"
	}
	file := filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(file, elfFile(t, other), 0o644))
	assert.ErrorContains(t, Runnable(file), "is not executable")
	require.NoError(t, os.Chmod(file, 0o755))
	err = Runnable(file)
	assert.ErrorContains(t, err, "is a program for ")
	assert.ErrorContains(t, err, "/"+arch+", and this machine is "+runtime.GOOS+"/"+runtime.GOARCH)
}
