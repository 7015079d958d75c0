# Installs mooring from this folder, without network:  powershell -ExecutionPolicy Bypass -File install.ps1 [-Target FOLDER]
param([string]$Target = (Join-Path $PSScriptRoot "mooring"), [string]$Python = "python")
$ErrorActionPreference = "Stop"
if (-not (Test-Path (Join-Path $Target "Scripts\python.exe"))) { & $Python -m venv $Target }
if (-not (Test-Path (Join-Path $Target "Scripts\python.exe"))) { throw "install.ps1: $Python could not make an environment in $Target." }
$requirements = Join-Path $PSScriptRoot "requirements.txt"
& (Join-Path $Target "Scripts\python.exe") -m pip install --quiet --disable-pip-version-check --no-index `
    --find-links (Join-Path $PSScriptRoot "wheels") --require-hashes --requirement $requirements
if ($LASTEXITCODE -ne 0) {
    $machine = (Get-Content $requirements -TotalCount 1).TrimStart("# ")
    throw "install.ps1: not installed. These wheels: $machine -Python names another Python."
}
Write-Output "Installed: $(Join-Path $Target 'Scripts\mooring.exe')"
