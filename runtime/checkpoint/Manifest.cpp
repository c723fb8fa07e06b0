// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/checkpoint/Manifest.h"
#include "runtime/artifact/Sha256.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kiln {

namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t format = 2;

Status reject(const std::string &origin, const std::string &found) {
  return Status(Code::inputRejected, origin + ": " + found);
}

/// The line that closes the text: the hash of all bytes before it.
std::string closing(std::string_view body) {
  return ",\n \"sha256\": \"" + sha256(body) + "\"\n}\n";
}

/// Only plain names: a manifest must not lead out of its folder.
bool isPlainName(const std::string &name) {
  return !name.empty() && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

Manifest readFields(const Json &json) {
  Manifest manifest;
  manifest.writtenBy = json.at("written_by").get<std::string>();
  manifest.model = json.at("model").get<std::string>();
  manifest.config = json.at("config").get<std::string>();
  manifest.step = json.at("step").get<uint64_t>();
  const Json &data = json.at("data");
  manifest.seed = data.at("seed").get<uint64_t>();
  manifest.globalBatch = data.at("global_batch").get<uint64_t>();
  manifest.samples = data.at("samples").get<uint64_t>();
  manifest.isShuffled = data.at("shuffle").get<bool>();
  manifest.contents =
      data.at("contents").get<std::map<std::string, std::string>>();
  for (const auto &[name, file] : json.at("files").items())
    manifest.files[name] = {file.at("bytes").get<uint64_t>(),
                            file.at("sha256").get<std::string>()};
  for (const auto &[name, others] : json.at("public_names").items())
    manifest.publicNames[name] = others.get<std::vector<std::string>>();
  return manifest;
}

} // namespace

std::string Manifest::print() const {
  Json json;
  json["format"] = format;
  json["written_by"] = writtenBy;
  json["model"] = model;
  json["config"] = config;
  json["step"] = step;
  // For readers only: the next sample and its epoch follow from the rest.
  uint64_t next = step * globalBatch;
  json["data"] = {{"seed", seed},
                  {"global_batch", globalBatch},
                  {"samples", samples},
                  {"shuffle", isShuffled},
                  {"contents", contents},
                  {"next_sample", next},
                  {"epoch", samples ? next / samples : 0}};
  json["files"] = Json::object();
  for (const auto &[name, file] : files)
    json["files"][name] = {{"bytes", file.bytes}, {"sha256", file.hash}};
  json["public_names"] = Json::object();
  for (const auto &[name, others] : publicNames)
    json["public_names"][name] = others;
  std::string body = json.dump(1, ' ', false, Json::error_handler_t::replace);
  body.resize(body.size() - 2); // The last line's end and the brace.
  return body + closing(body);
}

Expected<Manifest> Manifest::parse(const std::string &text,
                                   const std::string &origin) {
  size_t end = text.rfind(",\n \"sha256\": \"");
  if (end == text.npos ||
      closing(std::string_view(text).substr(0, end)) != text.substr(end))
    return reject(origin, "is damaged (SHA-256 does not match)");
  try {
    Json json = Json::parse(text);
    if (json.at("format").get<uint64_t>() != format)
      return reject(origin, "has format " + json.at("format").dump() +
                                ", this kiln reads " + std::to_string(format) +
                                "; training.init takes the weights beside it");
    Manifest manifest = readFields(json);
    if (manifest.print() != text)
      return reject(origin, "is not as kiln writes it");
    for (const auto &[name, file] : manifest.files)
      if (!isPlainName(name))
        return reject(origin, "names the file '" + name +
                                  "', wanted a plain name in its folder");
    return manifest;
  } catch (const std::exception &exception) {
    return reject(origin,
                  std::string("is not as kiln writes it: ") + exception.what());
  }
}

} // namespace kiln
